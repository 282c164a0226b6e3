"""Optimizer and learning-rate schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cory.runtime.checks import check_fields

if TYPE_CHECKING:
    import torch

    from cory.policies.base import Policy


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Optimizer settings. Warm-up, decay, clipping and 8-bit moments are off in the paper."""

    lr: float = 1e-4
    """Learning rate of Adam."""

    value_lr: float | None = None
    """Learning rate of the value head; none = the same."""

    warmup: int = 0
    """Iterations of linear warm-up: 1/warmup of the learning rates in the first."""

    decay: Literal["constant", "linear", "cosine"] = "constant"
    """Decay of the learning rates to 0 from the end of the warm-up to the end of the run."""

    optimizer: Literal["adam", "adam8bit"] = "adam"
    """`adam8bit` keeps its moments in 8 bits (extra `quant`)."""

    minibatch: int | None = None
    """Rows per optimiser step; none = the whole batch."""

    microbatches: int = 1
    """Micro-batches per minibatch, processed one after another to save memory; a pass that still would not
    fit is split further."""

    accumulation_mean: Literal["token", "microbatch"] = "token"
    """`token`: the loss is a mean over all tokens of the minibatch. `microbatch`: a mean of the means of its
    parts, as the released code does it."""

    max_grad_norm: float | None = None
    """Gradients are clipped to this norm; none = no clipping (the paper's)."""

    elastic_reset: int = 0
    """Iterations between Elastic Resets: the policy becomes the moving average of its weights, and the
    average the initial model; 0 = never."""

    ema: float = 0.0
    """Share that an iteration leaves as it was of a moving average of the trained weights. Evaluations show
    it as `average` (with several policies the mean of theirs); learning is the same. 0 = none."""

    def __post_init__(self) -> None:
        check_fields(self, "learner", rate="lr value_lr max_grad_norm", natural="warmup elastic_reset")
        check_fields(self, "learner", count="minibatch microbatches", below_1="ema")

    def check_batch(self, rows: int) -> None:
        """Raise ValueError for a batch that does not divide into equal minibatches and micro-batches."""
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


def make_optimizer(policy: Policy, config: LearnerConfig) -> torch.optim.Optimizer:
    """Adam with two parameter groups: the value head, and everything else that is trainable."""
    import torch

    values = {id(p) for p in policy.value_parameters()}
    trainable = [p for p in policy.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if id(p) not in values]},
        {"params": [p for p in trainable if id(p) in values], "lr": config.value_lr or config.lr},
    ]
    if config.optimizer == "adam":
        fused = not policy.is_sharded  # kernels for many tensors take no parts beside whole ones
        return torch.optim.Adam(groups, lr=config.lr, fused=fused, foreach=False)
    from cory.runtime.device import import_bitsandbytes

    library = import_bitsandbytes("learner.optimizer adam8bit")
    optimizer: torch.optim.Optimizer = library.optim.Adam8bit(groups, lr=config.lr)
    return optimizer


def learning_rates(config: LearnerConfig, iteration: int, iterations: int) -> tuple[float, float]:
    """Learning rates of the policy and of its value head at `iteration` of `iterations`.

    rise = min((k + 1) / warmup, 1)   fall = 1, 1 - u or (1 + cos pi u) / 2   u = (k - warmup) / (n - warmup)
    """
    factor = min((iteration + 1) / config.warmup, 1.0) if config.warmup else 1.0
    if config.decay != "constant" and iteration > config.warmup:
        share = min((iteration - config.warmup) / max(iterations - config.warmup, 1), 1.0)
        factor *= 1 - share if config.decay == "linear" else (1 + math.cos(math.pi * share)) / 2
    return config.lr * factor, (config.value_lr or config.lr) * factor
