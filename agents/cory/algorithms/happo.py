"""HAPPO (arXiv:2109.11251, algorithm 4): PPO of one policy after another, corrected for those before it.

Policies are updated in sequence. The advantage of the m-th is multiplied by the product of the new over the
old probabilities of the responses of all policies that were updated before it:

    M_b = prod over earlier policies of pi_new(response_b) / pi_old(response_b)

so that each policy improves on what the others have become. Order: that of play, its reverse, or random.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cory import rng
from cory.algorithms import ppo
from cory.algorithms.base import Advantages, Batches
from cory.algorithms.ppo import advantage, token_loss, verdict
from cory.functional.advantage import Advantage

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Config", "advantage", "corrected", "token_loss", "update_all", "verdict"]


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    """Settings of PPO, the order of updates and the bound of the correction."""

    order: Literal["play", "reverse", "random"] = "random"
    """`play` updates the pioneer's policy first, `reverse` the last observer's; `random` draws an order each
    iteration, as in the paper."""

    max_correction: float = 2.0
    """The correction M of a game is clipped to [1 / this, this]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_correction < float("inf"):
            raise ValueError(f"algorithm.max_correction is {self.max_correction}; give a number from 1")


def update_all(
    team: Any, batches: Batches, advantages: Advantages, config: Config
) -> dict[str, dict[str, float]]:
    """Update the policies in sequence; metrics by policy, with the mean and largest correction it had."""
    score_B = next(iter(batches.values())).score_B
    product_B = score_B.new_ones(score_B.shape)
    metrics = {}
    for name in order(team, config):
        seats = team.seats_of(name)
        correction_B = product_B.clamp(1 / config.max_correction, config.max_correction)
        weighted = {seat: corrected(advantages[seat], correction_B) for seat in seats}
        metrics_of_policy = team.learners[name].update(*team.data(name, batches, {**advantages, **weighted}))
        metrics_of_policy |= {
            "correction": correction_B.mean().item(),
            "correction_max": correction_B.max().item(),
        }
        metrics[name] = metrics_of_policy
        for seat in seats:
            change_BT = team.logprobs(seat, batches[seat]) - batches[seat].old_logprobs_BT
            product_B = product_B * change_BT.sum(1).exp()
    return metrics


def corrected(advantage: Advantage, correction_B: Tensor) -> Advantage:
    """The advantage times each game's correction; value targets stay."""
    return advantage._replace(advantage_BT=advantage.advantage_BT * correction_B[:, None])


def order(team: Any, config: Config) -> list[str]:
    """Policies in the order of their updates."""
    names = list(dict.fromkeys(team.seating.values()))
    if config.order == "random":
        return [names[i] for i in rng.permutation((*team.order_key, "policies"), len(names)).tolist()]
    return names if config.order == "play" else names[::-1]
