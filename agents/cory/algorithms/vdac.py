"""VDAC-sum (arXiv:2007.12306, section 4.1): PPO whose baseline is the sum of the seats' values.

The team is paid one payoff R. Its value is decomposed into the values of the policies' own heads, and every
seat's advantage compares R with the whole. Before token t of seat i the whole is

    V_tot(i, t) = V_i(t) + sum over earlier seats j < i of V_j(first token)

Advantages are GAE on V_tot with the seat's own rewards: with `lam` 1, R - V_tot less the KL penalties of the
seat's tokens from t on. Value heads learn through V_tot: the target of V_i is R less the earlier seats'
values, so a seat's value is what its prompt adds to what was expected before.

The agents of the paper act at once. Here a later seat's prompt holds the responses of earlier ones, and its
value in their baseline would remove the effect of those on the team: it is left out. One seat is PPO.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cory.algorithms import ppo
from cory.algorithms.base import Batches, Requirements, Rewards, States
from cory.algorithms.ppo import Config, token_loss, verdict
from cory.functional.advantage import Advantage

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Config", "advantage", "check_common_payoff", "earlier_values", "needs", "token_loss", "verdict"]


def needs(config: Config) -> Requirements:
    """Require the policies' own value heads, and payoffs as they are paid."""
    return Requirements(scaled_payoffs=False, payoff="common", critic="own")


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """Compute PPO's advantages with V_tot in place of each seat's value; ValueError without one payoff."""
    check_common_payoff(batches)
    earlier = earlier_values(batches)
    total = {
        seat: replace(batch, values_BT=batch.values_BT + earlier[seat][:, None])
        for seat, batch in batches.items()
    }
    return {
        seat: ppos._replace(
            return_BT=(ppos.return_BT - earlier[seat][:, None]).where(batches[seat].mask_BT, 0.0)
        )
        for seat, ppos in ppo.advantage(total, rewards, config, states).items()
    }


def earlier_values(batches: Batches) -> dict[str, Tensor]:
    """Sum of the first-token values of the seats before each seat, [B] by seat; 0 for the first."""
    first_B = next(iter(batches.values())).values_BT[:, 0]
    sum_B = first_B.new_zeros(first_B.shape)
    earlier = {}
    for seat, batch in batches.items():
        earlier[seat] = sum_B
        sum_B = sum_B + batch.values_BT[:, 0]
    return earlier


def check_common_payoff(batches: Batches) -> None:
    """Raise ValueError unless all seats are paid the same in every game."""
    (first, batch), *others = batches.items()
    for seat, other in others:
        if not batch.payoff_B.allclose(other.payoff_B, rtol=1e-4, atol=1e-4):
            raise ValueError(
                f"VDAC decomposes the value of one payoff for the team, and {first} and {seat} are paid "
                "differently; play it with --payoff cooperative or best"
            )
