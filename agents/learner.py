"""One policy's learner: batches and advantages in, an updated policy and numbers out.

What belongs to a policy and stays with it through every exchange lives here: optimiser, KL coefficient,
payoff statistics. Knows no games.

Shapes: B rows, T response tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from agents import kl, rewards
from agents.advantage import Advantage
from agents.batch import Batch
from agents.policies.base import LossSums, Policy


@dataclass(frozen=True, kw_only=True)
class Config:
    """How gradients become weights."""

    lr: float = 1e-4
    """Learning rate of Adam, constant."""

    minibatch: int | None = None
    """Rows per optimiser step; none = the whole batch."""

    microbatches: int = 1
    """Parts a minibatch is worked on in, one after another, to save memory."""

    accumulation_mean: Literal["token", "microbatch"] = "token"
    """`token`: the loss is a mean over all tokens of the minibatch. `microbatch`: a mean of the means of its
    parts, as the released code does it."""

    max_grad_norm: float | None = None
    """Gradients are scaled down to this norm; none = as they are (the paper's)."""

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"learner.lr is {self.lr}; a learning rate is above 0")
        if self.minibatch is not None and self.minibatch < 1:
            raise ValueError(
                f"learner.minibatch is {self.minibatch}; give rows per optimiser step, 1 or more"
            )
        if self.microbatches < 1:
            raise ValueError(f"learner.microbatches is {self.microbatches}; give 1 or more")
        if self.minibatch is not None and self.minibatch % self.microbatches:
            raise ValueError(
                f"learner.minibatch {self.minibatch} is not divisible by learner.microbatches "
                f"{self.microbatches}; choose numbers that divide"
            )
        if self.accumulation_mean not in get_args(Config.__annotations__["accumulation_mean"]):
            raise ValueError(
                f"learner.accumulation_mean is {self.accumulation_mean!r}; there are token, microbatch"
            )

    def check_batch(self, rows: int) -> None:
        """Refuse a batch that does not fall into equal minibatches and micro-batches."""
        minibatch = self.minibatch or rows
        if rows % minibatch:
            raise ValueError(
                f"a batch of {rows} rows is not divisible by learner.minibatch {minibatch}; "
                "choose numbers that divide"
            )
        if minibatch % self.microbatches:
            raise ValueError(
                f"a minibatch of {minibatch} rows is not divisible by learner.microbatches "
                f"{self.microbatches}; choose numbers that divide"
            )


class Learner:
    """The learning side of one policy."""

    def __init__(
        self,
        policy: Policy,
        algorithm: ModuleType,
        algorithm_config: Any,
        *,
        config: Config,
        kl_config: kl.Config,
        payoff_config: rewards.Config,
    ) -> None:
        self.policy = policy
        self.config = config
        self.kl_config = kl_config
        self.payoff_config = payoff_config
        self.epochs: int = algorithm_config.epochs
        self._token_loss = partial(algorithm.token_loss, config=algorithm_config)
        self.kl_coef = kl_config.coef
        self.moments = rewards.Moments()
        self.trainable = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.trainable, lr=config.lr, fused=True)

    def rewards(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Token rewards [B, T] of each seat this policy sat in: the scaled payoff less the KL price.

        Payoff statistics take these payoffs in first, all seats at once.
        """
        if self.payoff_config.scaling != "none":
            self.moments = self.moments.after(torch.cat([batch.payoff_B for batch in batches]))
        return [
            rewards.token_rewards(
                rewards.scaled(batch.payoff_B, self.moments, self.payoff_config),
                self.kl(batch),
                batch.mask_BT,
                kl_coef=self.kl_coef,
            )
            for batch in batches
        ]

    def kl(self, batch: Batch) -> Tensor:
        """The configured estimate of KL to the reference at each chosen token [B, T]; zero elsewhere."""
        kl_BT = kl.estimate(
            self.kl_config.kind, batch.old_logprobs_BT, batch.ref_logprobs_BT, batch.exact_kl_BT
        )
        return torch.where(batch.mask_BT, kl_BT, 0.0)

    def update(
        self,
        batch: Batch,
        advantage: Advantage,
        orders: Sequence[Tensor],
        *,
        on_minibatch: Callable[[dict[str, float]], None] = lambda numbers: None,
    ) -> dict[str, float]:
        """One pass over `batch` per order (a permutation of its rows); then the KL coefficient adapts.

        Returns means over the last pass, and `first_ratio_deviation`, the largest |ratio - 1| in the very
        first micro-batch: before any step it can only be rounding. `on_minibatch` sees the numbers of every
        micro-batch.
        """
        if len(orders) != self.epochs:
            raise ValueError(f"{len(orders)} orders for {self.epochs} epochs; give one permutation per epoch")
        size = self.config.minibatch or len(batch)
        passes: list[list[dict[str, float]]] = []
        for order_B in orders:
            parts = order_B.split(size)
            passes.append([row for part in parts for row in self._step(batch, advantage, part, on_minibatch)])
        last = passes[-1]
        told = {name: sum(part[name] for part in last) / len(last) for name in last[0]}
        told["first_ratio_deviation"] = passes[0][0].get("ratio_deviation", 0.0)
        told["kl_coef"] = self.kl_coef
        if self.kl_config.target is not None:
            self.kl_coef = kl.next_coefficient(
                self.kl_coef,
                self.kl(batch).sum(1).mean().item(),
                target=self.kl_config.target,
                horizon=self.kl_config.horizon,
                responses=len(batch),
            )
        return told

    def _step(
        self,
        batch: Batch,
        advantage: Advantage,
        index_B: Tensor,
        on_minibatch: Callable[[dict[str, float]], None],
    ) -> list[dict[str, float]]:
        """One optimiser step on the rows at `index_B`; the numbers of each micro-batch."""
        parts = index_B.chunk(self.config.microbatches)
        tokens = int(batch.response_length_B[index_B].sum())
        self.optimizer.zero_grad(set_to_none=True)
        history = []
        for part_B in parts:
            rows = batch.take(part_B)
            T = rows.response_BT.shape[1]
            targets = {name: tensor_BT[part_B, :T] for name, tensor_BT in advantage._asdict().items()}
            sums: LossSums = self.policy(rows, targets, self._token_loss)
            scale = 1 / tokens if self.config.accumulation_mean == "token" else 1 / (sums.tokens * len(parts))
            (sums.loss * scale).backward()
            numbers = {name: (number / sums.tokens).item() for name, number in sums.numbers.items()}
            numbers |= {name: number.item() for name, number in sums.largest.items()}
            numbers["loss"] = (sums.loss / sums.tokens).item()
            self._check(numbers, part_B)
            on_minibatch(numbers)
            history.append(numbers)
        gradient = torch.nn.utils.get_total_norm([p.grad for p in self.trainable if p.grad is not None])
        if not bool(torch.isfinite(gradient)):
            raise FloatingPointError(
                f"the gradient of policy {self.policy.name!r} is not finite; lower learner.lr"
            )
        if self.config.max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.trainable, self.config.max_grad_norm, gradient)
        self.optimizer.step()
        self.policy.version += 1
        for numbers in history:
            numbers["gradient_norm"] = gradient.item()
        return history

    def _check(self, numbers: dict[str, float], part_B: Tensor) -> None:
        broken = [name for name, number in numbers.items() if number != number or abs(number) == float("inf")]
        if broken:
            raise FloatingPointError(
                f"{', '.join(broken)} of policy {self.policy.name!r} is not finite on rows "
                f"{part_B.tolist()[:8]}; lower learner.lr or raise kl.coef"
            )
