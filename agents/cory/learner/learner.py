"""The learner of one policy: batches and advantages in, an updated policy and metrics out.

Everything that belongs to a policy and stays with it through every exchange is here: optimiser, KL
coefficient, payoff statistics, the state of its algorithm. Knows no games.

Shapes: B rows, T response tokens, K chosen tokens.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from cory.algorithms.base import Algorithm, Verdict, check_state
from cory.batch import Batch
from cory.distributed import ranks, sharding
from cory.functional import kl, token_rewards
from cory.functional.advantage import Advantage
from cory.learner.moving_average import ElasticReset, MovingAverage
from cory.learner.optimizer import LearnerConfig, learning_rates, make_optimizer
from cory.policies.base import LossSums, Policy
from cory.policies.chunked_loss import KLLoss
from cory.runtime import signals
from cory.runtime.memory import Attempts, agree_on_smallest
from cory.token_loss import LossFunction, PartMetrics, combine, merge

LOWEST_MEAN_KL = -0.5
"""Mean k1 per response, in nats, that sampling noise alone does not reach in many consecutive iterations."""
PATIENCE = 5
"""Consecutive iterations below it that are an error."""


class Learner:
    """Optimiser and learning state of one policy."""

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        algorithm_config: Any,
        *,
        config: LearnerConfig,
        kl_config: kl.KLConfig,
        payoff_config: token_rewards.PayoffScalingConfig,
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.algorithm_config = algorithm_config
        self.config = config
        self.kl_config = kl_config
        self.payoff_config = payoff_config
        self.epochs: int = getattr(algorithm_config, "epochs", 1)
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise ValueError(f"algorithm.epochs is {self.epochs}; give a whole number from 1")
        self.token_loss: LossFunction = partial(algorithm.token_loss, config=algorithm_config)
        self.trainable = [p for p in policy.parameters() if p.requires_grad]
        values = {id(p) for p in policy.value_parameters()}
        weights, every = [p for p in self.trainable if id(p) not in values], config.elastic_reset
        self.elastic = ElasticReset(weights, every=every) if every else None
        self.ema = MovingAverage(self.trainable, decay=config.ema) if config.ema else None
        self.reset()

    def reset(self) -> None:
        """Start anew but for the weights: optimiser, KL coefficient, statistics, the algorithm's state."""
        self.kl_coef = self.kl_config.coef
        self.moments = token_rewards.Moments()
        self.negative_kl_streak = 0
        self.optimizer = make_optimizer(self.policy, self.config)
        self.algorithm_state: Any = self.algorithm.policy_state(self, self.algorithm_config)
        check_state(self.algorithm_state, self.policy.name, self.algorithm.name)

    def state(self) -> dict[str, Any]:
        """What belongs to the policy beside its weights and its optimiser, as JSON."""
        return {
            "kl_coef": self.kl_coef,
            "moments": vars(self.moments),
            "negative_kl_streak": self.negative_kl_streak,
            "version": self.policy.version,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned."""
        self.kl_coef, self.moments = state["kl_coef"], token_rewards.Moments(**state["moments"])
        self.negative_kl_streak = state["negative_kl_streak"]
        self.policy.version = state["version"]

    def begin_iteration(self, iteration: int, iterations: int) -> None:
        """Set the learning rates and, if scheduled, the KL coefficient of `iteration`."""
        rates = learning_rates(self.config, iteration, iterations)
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        if self.kl_config.final is not None:
            self.kl_coef = kl.coefficient_at(self.kl_config, iteration, iterations)

    def rewards(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Token rewards [B, T] of each seat this policy sat in: the scaled payoff less the KL penalty.

        Payoff statistics are updated with these payoffs first, all seats at once.
        """
        if self.payoff_config.scaling != "none":
            self.moments = self.moments.after(torch.cat([batch.payoff_B for batch in batches]))
        coef = self.kl_coef if self.kl_config.place == "reward" else 0.0
        return [
            token_rewards.token_rewards(
                token_rewards.scaled(batch.payoff_B, self.moments, self.payoff_config),
                self.kl(batch),
                batch.mask_BT,
                kl_coef=coef,
            )
            for batch in batches
        ]

    def kl(self, batch: Batch) -> Tensor:
        """The configured estimate of KL to the reference at each chosen token [B, T]; zero elsewhere."""
        kl_BT = kl.estimate(
            self.kl_config.kind, batch.old_logprobs_BT, batch.ref_logprobs_BT, batch.exact_kl_BT
        )
        return torch.where(batch.mask_BT, kl_BT, 0.0)

    @property
    def kl_loss(self) -> KLLoss | None:
        """The KL term of the loss, None where KL is part of the reward."""
        if self.kl_config.place == "reward":
            return None
        return KLLoss(kind=self.kl_config.kind, coef=self.kl_coef)

    @torch.enable_grad()
    def update(
        self,
        batch: Batch,
        advantage: Advantage,
        orders: Sequence[Tensor],
        own_rows: int | None = None,
    ) -> dict[str, float]:
        """One pass over `batch` per order (a permutation of its rows); then the KL coefficient adapts.

        KL is estimated on the rows that the policy sampled itself, the first `own_rows`; None = all.

        An algorithm with its own `update` replaces the passes. Returns means over the tokens of the last
        pass, `first_ratio_deviation`, the largest |ratio - 1| in the first minibatch (before any step only
        rounding can cause one), and `steps`, the number of optimiser steps.
        """
        own = batch
        if own_rows is not None and own_rows < len(batch):
            own = batch.take(torch.arange(own_rows, device=batch.response_BT.device))
        self._check_kl(own)
        if self.algorithm.update is not None:  # every rank computes it; all go on with that of rank 0
            learn = partial(self.algorithm.update, self, batch, advantage, self.algorithm_config)
            metrics = ranks.gather_results("an update", learn)[0]
            if not isinstance(metrics, Mapping):
                raise ValueError(
                    f"update of algorithm {self.algorithm.name!r} returned {metrics!r:.80}; return its "
                    "metrics by name"
                )
            moments = (value for of in self.optimizer.state.values() for value in of.values())
            ranks.copy_first([*self.trainable, *(moment for moment in moments if isinstance(moment, Tensor))])
            return self._adapt_kl_coef(own, metrics)
        if len(orders) != self.epochs:
            raise ValueError(f"{len(orders)} orders for {self.epochs} epochs; give one permutation per epoch")
        version, first, verdict = self.policy.version, None, "step"
        for order_B in orders:
            epoch: list[PartMetrics] = []
            for index_B in order_B.split(self.config.minibatch or len(batch)):
                parts, verdict = self.step(batch, advantage, index_B)
                first = first or combine(parts)
                epoch += parts
                if verdict == "stop":
                    break
            if verdict == "stop":
                break
        metrics = combine(epoch)
        metrics["first_ratio_deviation"] = (first or {}).get("ratio_deviation", 0.0)
        metrics["steps"] = float(self.policy.version - version)
        return self._adapt_kl_coef(own, metrics)

    def step(self, batch: Batch, advantage: Advantage, index_B: Tensor) -> tuple[list[PartMetrics], Verdict]:
        """One optimiser step on the rows at `index_B`, unless the algorithm's verdict is against it.

        If memory runs out in its passes, on any rank, all take them again from the first in smaller ones.
        Returns the metrics of each micro-batch and the verdict; `Stopped` after a signal and its grace.
        """
        ranks.gather_results("a step", partial(signals.check, signals.GRACE))
        agree_on_smallest(self.policy.memory)
        attempts = Attempts(
            "while learning",
            budget=self.policy.memory,
            device=self.policy.device,
            alone=not self.policy.is_sharded,
        )
        while attempts.should_retry():
            self.optimizer.zero_grad(set_to_none=True)  # drop stale gradients
            parts: list[PartMetrics] = []
            sums: LossSums | None = None  # drop the graph of an attempt that failed
            with attempts:
                for own_B, divisor in self._passes(batch, index_B):
                    part = None
                    # An error reaches no rank that waits for weights of this one: the launcher ends those.
                    with nullcontext() if self.policy.is_sharded else ranks.raised_on_all("a pass"):
                        if len(own_B):
                            rows, targets = select(batch, advantage, own_B)
                            sums = self.policy(rows, targets, self.token_loss, kl_loss=self.kl_loss)
                            (sums.loss / divisor).backward()
                            part = self._metrics(sums, own_B) if divisor < math.inf else None
                    everyone = ranks.gather_object("a pass", part)
                    parts.append(merge([part for part in everyone if part is not None]))
        ranks.add_gradients([p for p in self.trainable if not sharding.is_shard(p)])
        gradient = sharding.total_norm([p.grad for p in self.trainable if p.grad is not None])
        norm = gradient.item()
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of policy {self.policy.name!r} is not finite; lower learner.lr"
            )
        for part in parts:
            part.means["gradient_norm"] = norm
        verdict = self.algorithm.verdict(combine(parts), self.algorithm_config)
        if verdict not in get_args(Verdict):
            raise ValueError(
                f"the verdict of algorithm {self.algorithm.name!r} is {verdict!r}; return step, skip or stop"
            )
        if verdict == "step":
            if self.config.max_grad_norm is not None:
                sharding.clip(self.trainable, self.config.max_grad_norm, gradient)
            self.optimizer.step()
            self.policy.version += 1
        self.optimizer.zero_grad(set_to_none=True)  # free the gradients while others sample and learn
        return parts, verdict

    def _microbatches(self, batch: Batch, index_B: Tensor) -> list[Tensor]:
        """The configured micro-batches, split further where a pass would not fit memory.

        A mean over micro-batches (`accumulation_mean="microbatch"`) is never split further.
        """
        parts = list(index_B.chunk(self.config.microbatches))
        if self.config.accumulation_mean == "microbatch":
            return parts
        longest = int((batch.prompt_length_B + batch.response_length_B)[index_B].max())
        at_once = ranks.count() * self.policy.max_rows(longest)
        return [piece_B for part_B in parts for piece_B in batch.pieces(at_once, part_B)]

    def _passes(self, batch: Batch, index_B: Tensor) -> list[tuple[Tensor, float]]:
        """Of each pass of a step: the rows of this rank, and what the sum of losses is divided by.

        A rank without rows in a pass takes one and divides by infinity where others wait for its part of the
        weights.
        """
        parts = self._microbatches(batch, index_B)
        tokens = [int(batch.response_length_B[part_B].sum()) for part_B in parts]
        if self.config.accumulation_mean == "microbatch":
            divisors = [len(parts) * count for count in tokens]
        else:
            divisors = [sum(tokens)] * len(parts)
        passes: list[tuple[Tensor, float]] = []
        for part_B, divisor in zip(parts, divisors, strict=True):
            own_B = part_B[ranks.share(len(part_B))]
            waited_for = self.policy.is_sharded and not len(own_B)
            passes.append((part_B[:1], math.inf) if waited_for else (own_B, divisor))
        return passes

    def _metrics(self, sums: LossSums, part_B: Tensor) -> PartMetrics:
        tensors = {name: total / sums.tokens for name, total in sums.metrics.items()}
        tensors |= sums.maxima | {"loss": sums.loss.detach() / sums.tokens}
        metrics = dict(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True))  # one sync
        if broken := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise FloatingPointError(
                f"{', '.join(broken)} of policy {self.policy.name!r} is not finite on rows "
                f"{part_B.tolist()[:8]}; lower learner.lr or raise kl.coef"
            )
        maxima = {name: metrics.pop(name) for name in sums.maxima}
        return PartMetrics(metrics, maxima, sums.tokens)

    def _check_kl(self, batch: Batch) -> None:
        """KL is never negative: if its estimate stays so, other tokens are scored than were sampled."""
        mean = (batch.old_logprobs_BT - batch.ref_logprobs_BT).sum(1).mean().item()
        sound = mean >= LOWEST_MEAN_KL or self.policy.mismatch == "released"
        self.negative_kl_streak = 0 if sound else self.negative_kl_streak + 1
        if self.negative_kl_streak >= PATIENCE:
            raise ArithmeticError(
                f"KL of policy {self.policy.name!r} to its reference was estimated below {LOWEST_MEAN_KL} "
                f"nats per response in {PATIENCE} consecutive updates (now {mean:.2f}); the distribution "
                "that is sampled is not the one that is scored"
            )

    def end_iteration(self, iteration: int) -> None:
        """Elastic Reset's average and, if it is due, its reset; then the moving average of the weights."""
        if self.elastic is not None:
            self.elastic.end_iteration(iteration)
        if self.ema is not None:
            self.ema.update()

    def _adapt_kl_coef(self, batch: Batch, metrics: dict[str, float]) -> dict[str, float]:
        """Record the KL coefficient of this update, then adapt it towards `kl.target`."""
        metrics["kl_coef"] = self.kl_coef
        if self.kl_config.target is not None:
            self.kl_coef = kl.next_coefficient(
                self.kl_coef,
                self.kl(batch).sum(1).mean().item(),
                target=self.kl_config.target,
                responses=len(batch),
            )
        return metrics


def select(batch: Batch, advantage: Advantage, index_B: Tensor) -> tuple[Batch, dict[str, Tensor]]:
    """The rows at `index_B` and their targets by name, cut to the longest response among them."""
    rows = batch.take(index_B)
    T = rows.response_BT.shape[1]
    return rows, {name: tensor_BT[index_B, :T] for name, tensor_BT in advantage._asdict().items()}
