"""Rewards per token: the payoff (in CORY the collective reward) at the last token, less a KL penalty at each.

The collective reward is the sum of the scores of all seats (`payoff="cooperative"`). Running statistics can
scale or normalise payoffs before they become rewards.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cory.runtime.checks import check_fields

if TYPE_CHECKING:
    from torch import Tensor

Scaling = Literal["none", "scale", "normalise"]


@dataclass(frozen=True, kw_only=True)
class PayoffScalingConfig:
    """Scaling and clipping of payoffs before they become rewards."""

    scaling: Scaling = "none"
    """`scale` divides by the running standard deviation, `normalise` subtracts the running mean first."""

    def __post_init__(self) -> None:
        check_fields(self, "payoff_scaling")


@dataclass(frozen=True)
class Moments:
    """Running mean and variance of all payoffs of one policy."""

    mean: float = 0.0
    var: float = 1.0
    """Population variance."""
    count: float = 1e-24

    @property
    def std(self) -> float:
        """Sample standard deviation; 1 of a single payoff."""
        return math.sqrt(self.var * self.count / (self.count - 1)) if self.count > 1 else 1.0

    def after(self, payoff_B: Tensor) -> Moments:
        """The moments with one more batch included (Chan et al. 1979, the parallel update)."""
        count = payoff_B.numel()
        total = self.count + count
        mean, var = payoff_B.cpu().double().mean().item(), payoff_B.cpu().double().var(correction=0).item()
        delta = mean - self.mean
        spread = self.var * self.count + delta**2 * self.count * count / total + var * count
        return Moments(mean=self.mean + delta * count / total, var=spread / total, count=total)


def scaled(payoff_B: Tensor, moments: Moments, config: PayoffScalingConfig) -> Tensor:
    """Payoffs scaled as in the released code; `moments` must already include this batch."""
    import torch

    spread = moments.std + torch.finfo(payoff_B.dtype).eps if config.scaling != "none" else 1.0
    shift = moments.mean if config.scaling == "normalise" else 0.0
    return (payoff_B - shift) / spread


def token_rewards(payoff_B: Tensor, kl_BT: Tensor, mask_BT: Tensor, *, kl_coef: float) -> Tensor:
    """r_t = -kl_coef * kl_t, plus the payoff at the last chosen token (CORY, eq. 2 and 4); zero past it."""
    rewards_BT = (-kl_coef * kl_BT).where(mask_BT, 0.0)
    last_B1 = mask_BT.sum(dim=1, keepdim=True) - 1
    return rewards_BT.scatter_add(1, last_B1, payoff_B[:, None].to(rewards_BT))
