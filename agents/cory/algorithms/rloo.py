"""RLOO (arXiv:2402.14740, eq. 8): REINFORCE whose baseline is the mean return of other games of the query.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from cory.algorithms.base import Batches, Requirements, Rewards, Settings, States
from cory.algorithms.reinforce import token_loss
from cory.functional.advantage import Advantage, leave_one_out, per_response, totals

__all__ = ["Config", "advantage", "needs", "token_loss"]


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of the RLOO update."""

    group: int = 4
    """Games per query; the baseline of a response is the mean of the others in its group."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""


def needs(config: Config) -> Requirements:
    """Require groups and no value head."""
    return Requirements(values=False, group=config.group)


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """R_i minus the mean of the group's other R_j, at every token of response i.

    R is the sum of a response's token rewards: the payoff minus, with the KL penalty in the reward, the
    penalty of the whole response.
    """
    advantages = {}
    for seat, batch in batches.items():
        advantage_B = leave_one_out(totals(rewards[seat], batch.mask_BT), group=config.group)
        advantages[seat] = per_response(advantage_B, rewards[seat], batch.mask_BT)
    return advantages
