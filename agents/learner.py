"""One policy's learner: batches and advantages in, an updated policy and numbers out.

What belongs to a policy and stays with it through every exchange lives here: optimiser, KL coefficient,
payoff statistics, what its algorithm remembers. Knows no games.

Shapes: B rows, T response tokens, K chosen tokens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from agents import kl, rewards
from agents.advantage import Advantage
from agents.algorithms import Algorithm, Memory, TokenLoss, Tokens, Verdict
from agents.batch import Batch, Rows
from agents.optimizer import Config, learning_rates, make_optimizer
from agents.passes import Pass, Passes, alone
from agents.policies.base import LossSums, Policy

BELOW_ZERO = -0.5
"""Mean k1 per response, in nats, that chance alone does not reach in many iterations running."""
PATIENCE = 5
"""Iterations running after which it is an error."""


class Learner:
    """The learning side of one policy."""

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        algorithm_config: Any,
        *,
        config: Config,
        kl_config: kl.Config,
        payoff_config: rewards.Config,
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.algorithm_config = algorithm_config
        self.config = config
        self.kl_config = kl_config
        self.payoff_config = payoff_config
        self.epochs: int = getattr(algorithm_config, "epochs", 1)
        self.trainable = [p for p in policy.parameters() if p.requires_grad]
        self.reset()

    def reset(self) -> None:
        """Forget all but the weights: optimiser, KL coefficient, statistics, the algorithm's memory."""
        self.kl_coef = self.kl_config.coef
        self.moments = rewards.Moments()
        self.memory: Memory = {}
        self.below_zero = 0
        self.optimizer = make_optimizer(self.policy, self.config)

    def state(self) -> dict[str, Any]:
        """What belongs to the policy beside its weights and its optimiser, as JSON."""
        return {
            "kl_coef": self.kl_coef,
            "moments": vars(self.moments),
            "memory": self.memory,
            "below_zero": self.below_zero,
            "version": self.policy.version,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Undo `state`."""
        self.kl_coef, self.moments = state["kl_coef"], rewards.Moments(**state["moments"])
        self.memory, self.below_zero = dict(state["memory"]), state["below_zero"]
        self.policy.version = state["version"]

    def begin(self, iteration: int, iterations: int) -> None:
        """What the clock decides: learning rates, and the KL coefficient where it is scheduled."""
        for group, lr in zip(
            self.optimizer.param_groups, learning_rates(self.config, iteration, iterations), strict=True
        ):
            group["lr"] = lr
        if self.kl_config.final is not None:
            self.kl_coef = kl.coefficient_at(self.kl_config, iteration)

    def rewards(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Token rewards [B, T] of each seat this policy sat in: the scaled payoff less the KL price.

        Payoff statistics take these payoffs in first, all seats at once.
        """
        if self.payoff_config.scaling != "none":
            self.moments = self.moments.after(torch.cat([batch.payoff_B for batch in batches]))
        price = self.kl_coef if self.kl_config.place == "reward" else 0.0
        return [
            rewards.token_rewards(
                rewards.scaled(batch.payoff_B, self.moments, self.payoff_config),
                self.kl(batch),
                batch.mask_BT,
                kl_coef=price,
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
        interrupt: Callable[[], None] = lambda: None,
    ) -> dict[str, float]:
        """One pass over `batch` per order (a permutation of its rows); then the KL coefficient adapts.

        An algorithm with an `update` of its own does that instead. Returns means over the last pass,
        `first_ratio_deviation`, the largest |ratio - 1| in the very first micro-batch (before any step it can
        only be rounding), and `steps`, how many optimiser steps were taken. `on_minibatch` sees the numbers
        of every micro-batch; `interrupt` is called before every step and may raise.
        """
        return alone(self.learning(batch, advantage, orders, on_minibatch=on_minibatch, interrupt=interrupt))

    def learning(
        self,
        batch: Batch,
        advantage: Advantage,
        orders: Sequence[Tensor],
        *,
        on_minibatch: Callable[[dict[str, float]], None] = lambda numbers: None,
        interrupt: Callable[[], None] = lambda: None,
        sharing: int = 1,
    ) -> Passes[dict[str, float]]:
        """`update`, as a generator of the passes it wants; for `agents.passes`.

        `sharing` is among how many learners the memory of a pass is divided.
        """
        self._check_kl(batch)
        if self.algorithm.update is not None:
            told = self.algorithm.update(self, batch, advantage, self.algorithm_config)
        else:
            told = yield from self._epochs(batch, advantage, orders, on_minibatch, interrupt, sharing)
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

    def _check_kl(self, batch: Batch) -> None:
        """KL is never negative: where its estimate stays so, other tokens are scored than were sampled."""
        mean = (batch.old_logprobs_BT - batch.ref_logprobs_BT).sum(1).mean().item()
        sound = mean >= BELOW_ZERO or self.policy.mismatch == "released"
        self.below_zero = 0 if sound else self.below_zero + 1
        if self.below_zero >= PATIENCE:
            raise ArithmeticError(
                f"KL of policy {self.policy.name!r} to its reference was estimated below {BELOW_ZERO} nats "
                f"per response in {PATIENCE} updates running (now {mean:.2f}); the distribution that is "
                "sampled is not the one that is scored"
            )

    def keeps(self, rows: Rows, *, sharing: int) -> bool:
        """Whether its first step is taken on all of `rows` at once, with the weights that value them: the
        pass that values them may then be kept to learn from."""
        B, tokens = len(rows.response_BT), int(rows.response_length_B.sum())
        return (
            self.algorithm.update is None
            and not self._exact
            and self.config.in_one_pass(B)
            and self.policy.may_keep(B, rows.longest, tokens, sharing=sharing)
        )

    def _epochs(
        self,
        batch: Batch,
        advantage: Advantage,
        orders: Sequence[Tensor],
        on_minibatch: Callable[[dict[str, float]], None],
        interrupt: Callable[[], None],
        sharing: int,
    ) -> Passes[dict[str, float]]:
        if len(orders) != self.epochs:
            raise ValueError(f"{len(orders)} orders for {self.epochs} epochs; give one permutation per epoch")
        size, before = self.config.minibatch or len(batch), self.policy.version
        first: dict[str, float] = {}
        verdict: Verdict = "step"
        for order_B in orders:
            last: list[dict[str, float]] = []
            for part_B in order_B.split(size):
                interrupt()
                numbers, verdict = yield from self.step(batch, advantage, part_B, on_minibatch, sharing)
                if batch.live is not None:
                    batch = replace(batch, live=None)
                first = first or numbers[0]
                last += numbers
                if verdict == "stop":
                    break
            if verdict == "stop":
                break
        told = means(last)
        told["first_ratio_deviation"] = first.get("ratio_deviation", 0.0)
        told["steps"] = float(self.policy.version - before)
        return told

    def step(
        self,
        batch: Batch,
        advantage: Advantage,
        index_B: Tensor,
        on_minibatch: Callable[[dict[str, float]], None] = lambda numbers: None,
        sharing: int = 1,
    ) -> Passes[tuple[list[dict[str, float]], Verdict]]:
        """One optimiser step on the rows at `index_B`, unless the algorithm's verdict is against it; the
        numbers of each micro-batch. A live batch is learned from as it is, whole."""
        parts = self._parts(batch, index_B, sharing)
        tokens = int(batch.response_length_B[index_B].sum())
        self.optimizer.zero_grad(set_to_none=True)  # whoever else left some
        history = []
        for part_B in parts:
            rows, targets = cut(batch, advantage, part_B)
            by_token = self.config.accumulation_mean == "token"
            of_all = tokens if by_token else len(parts) * int(rows.response_length_B.sum())
            sums = yield Pass(self.policy, rows, targets, self._token_loss(), self._exact, 1 / of_all)
            numbers = self._numbers(sums, part_B)
            on_minibatch(numbers)
            history.append(numbers)
        gradient = torch.nn.utils.get_total_norm([p.grad for p in self.trainable if p.grad is not None])
        norm = gradient.item()
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of policy {self.policy.name!r} is not finite; lower learner.lr"
            )
        for numbers in history:
            numbers["gradient_norm"] = norm
        verdict = self.algorithm.verdict(means(history), self.algorithm_config)
        if verdict == "step":
            if self.config.max_grad_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(self.trainable, self.config.max_grad_norm, gradient)
            self.optimizer.step()
            self.policy.version += 1
        self.optimizer.zero_grad(set_to_none=True)  # no memory is held while others sample and learn
        return history, verdict

    def _parts(self, batch: Batch, index_B: Tensor, sharing: int) -> list[Tensor]:
        """The micro-batches that are asked for; more of them where a pass should take fewer rows, unless the
        mean over micro-batches is what is asked for, or the pass has been made."""
        if batch.live is not None:
            return [index_B]
        parts = list(index_B.chunk(self.config.microbatches))
        if self.config.accumulation_mean == "microbatch":
            return parts
        longest = int((batch.prompt_length_B + batch.response_length_B)[index_B].max())
        at_once = max(1, self.policy.rows_at_once(longest) // sharing)
        return [piece_B for part_B in parts for piece_B in part_B.chunk(-(-len(part_B) // at_once))]

    @property
    def _exact(self) -> bool:
        return self.kl_config.place == "loss" and self.kl_config.kind == "full"

    def _token_loss(self) -> Callable[[Tokens], TokenLoss]:
        """The algorithm's loss, with the price of KL where it belongs to the loss."""
        plain = partial(self.algorithm.token_loss, config=self.algorithm_config)
        if self.kl_config.place == "reward":
            return plain
        price = partial(kl.in_loss, kind=self.kl_config.kind, coef=self.kl_coef)

        def priced(tokens: Tokens) -> TokenLoss:
            told = plain(tokens)
            return told._replace(loss_K=price(told.loss_K, tokens))

        return priced

    def _numbers(self, sums: LossSums, part_B: Tensor) -> dict[str, float]:
        told = {name: number / sums.tokens for name, number in sums.numbers.items()}
        told |= sums.largest | {"loss": sums.loss.detach() / sums.tokens}
        numbers = dict(zip(told, torch.stack(list(told.values())).tolist(), strict=True))  # waits once
        broken = [name for name, number in numbers.items() if number != number or abs(number) == float("inf")]
        if broken:
            raise FloatingPointError(
                f"{', '.join(broken)} of policy {self.policy.name!r} is not finite on rows "
                f"{part_B.tolist()[:8]}; lower learner.lr or raise kl.coef"
            )
        return numbers


def cut(batch: Batch, advantage: Advantage, index_B: Tensor) -> tuple[Batch, dict[str, Tensor]]:
    """The rows at `index_B` and their targets by name, cut to the longest response among them; a live batch
    whole."""
    if batch.live is not None:
        return batch, advantage._asdict()
    rows = batch.take(index_B)
    T = rows.response_BT.shape[1]
    return rows, {name: tensor_BT[index_B, :T] for name, tensor_BT in advantage._asdict().items()}


def means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each number over the rows."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
