"""How gradients become weights: Adam, its learning rates as functions of the clock."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from agents.policies.base import Policy

Decay = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """How gradients become weights. Warm-up, decay, clipping, 8 bits: all off in the paper."""

    lr: float = 1e-4
    """Learning rate of Adam."""

    value_lr: float | None = None
    """Learning rate of the value head; none = the same."""

    warmup: int = 0
    """Iterations in which learning rates rise in equal steps: 1/warmup of them in the first."""

    decay: Decay = "constant"
    """How learning rates fall to 0 from the end of the warm-up to the end of the run."""

    optimizer: Literal["adam", "adam8bit"] = "adam"
    """`adam8bit` keeps its moments in 8 bits (extra `quant`)."""

    minibatch: int | None = None
    """Rows per optimiser step; none = the whole batch."""

    microbatches: int = 1
    """Parts a minibatch is worked on in, one after another, to save memory; where a pass would still keep too
    much for its gradient, in more."""

    accumulation_mean: Literal["token", "microbatch"] = "token"
    """`token`: the loss is a mean over all tokens of the minibatch. `microbatch`: a mean of the means of its
    parts, as the released code does it."""

    max_grad_norm: float | None = None
    """Gradients are scaled down to this norm; none = as they are (the paper's)."""

    def __post_init__(self) -> None:
        for name in ("lr", "value_lr", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"learner.{name} is {value}; give a finite number above 0")
        if self.warmup < 0:
            raise ValueError(f"learner.warmup is {self.warmup}; give iterations, 0 or more")
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
        for name, known in (
            ("accumulation_mean", ("token", "microbatch")),
            ("decay", get_args(Decay)),
            ("optimizer", ("adam", "adam8bit")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"learner.{name} is {getattr(self, name)!r}; there are {', '.join(known)}")

    def in_one_pass(self, rows: int) -> bool:
        """Whether a step is taken on so many rows at once, as far as these settings say."""
        return self.microbatches == 1 and rows <= (self.minibatch or rows)

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


def make_optimizer(policy: Policy, config: Config) -> torch.optim.Optimizer:
    """Adam in two groups: everything trainable but the value head, and the value head."""
    values = {id(p) for p in policy.value_parameters()}
    trainable = [p for p in policy.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if id(p) not in values]},
        {"params": [p for p in trainable if id(p) in values], "lr": config.value_lr or config.lr},
    ]
    if config.optimizer == "adam":
        return torch.optim.Adam(groups, lr=config.lr, fused=True)
    try:
        from bitsandbytes.optim import Adam8bit
    except ImportError as error:
        raise ImportError(
            "learner.optimizer adam8bit needs bitsandbytes; pip install 'cory[quant]'"
        ) from error
    optimizer: torch.optim.Optimizer = Adam8bit(groups, lr=config.lr)
    return optimizer


def learning_rates(config: Config, iteration: int, iterations: int) -> tuple[float, float]:
    """The rates of the policy and of its value head at `iteration` of `iterations`.

    rise = min((k + 1) / warmup, 1)   fall = 1, 1 - u or (1 + cos pi u) / 2   u = (k - warmup) / (n - warmup)
    """
    factor = min((iteration + 1) / config.warmup, 1.0) if config.warmup else 1.0
    if config.decay != "constant" and iteration > config.warmup:
        share = min((iteration - config.warmup) / max(iterations - config.warmup, 1), 1.0)
        factor *= 1 - share if config.decay == "linear" else (1 + math.cos(math.pi * share)) / 2
    return config.lr * factor, (config.value_lr or config.lr) * factor
