"""seq: PPO with credit by sequence, which is the cooperative payoff with less variance.

The seats respond one after another. Where each response is scored by itself, no seat can change the scores of
earlier seats: in its collective reward they are noise. Of a later seat's score it causes only what its
response makes likelier; the chance in the later seat's sampling is noise too. Seat i is therefore credited
with

    r_i + others * sum over later seats j of (V_j + seat_lam (r_j - V_j))

in place of r_i + others * sum over all other j of r_j. V_j is the score that j expects before it responds,
having read the response of i: the value that the critic gives to the prompt of j, plus the KL penalty that j
then paid, which the critic has learned to expect and i does not owe. With `seat_lam` 1 later
scores are taken as they were drawn, with 0 as expected; it is GAE's lambda for the step between seats. With a
critic that is right, all have the gradient of the cooperative payoff in expectation. Where an observer is not
shown the query (relay), take the central critic (`critic.kind` central) or `seat_lam` 1.

V_j stands for r_j only where j is credited with its own score alone, which is the last seat; the scores of
seats between are taken as they were drawn. With `calibrate` later scores count less their mean over the
batch, which changes no gradient in expectation, and V_j only as far as it predicts r_j: times the slope of
r_j on V_j over the batch, between 0 and 1. Related: COSAC (arXiv:2604.17693).

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cory.algorithms import ppo
from cory.algorithms.base import Batches, Requirements, Rewards, States, check_undiscounted, expected_score
from cory.algorithms.ppo import token_loss, verdict

if TYPE_CHECKING:
    from torch import Tensor

    from cory.functional.advantage import Advantage

__all__ = ["Config", "advantage", "credits", "needs", "token_loss", "verdict"]


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    """Settings of PPO, without its scaling of rewards, and how later seats' scores are credited."""

    others: float = 1.0
    """Weight of the other seats' scores: that of the payoff, which is 1 for `cooperative`."""

    seat_lam: float = 0.0
    """Weight of the last seat's score as drawn, against what its critic expected."""

    calibrate: bool = False
    """Whether later scores count less their mean over the batch, and what the critic expected only as far
    as it predicts them: times the slope of the scores on it, between 0 and 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_undiscounted(self, "seq")


def needs(config: Config) -> Requirements:
    """Require a value head, and payoffs as they are paid."""
    return Requirements(scaled_payoffs=False, payoff="sum")


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """Compute PPO's advantages from the credits in place of the payoffs.

    ValueError if the payoff is not a seat's score plus `others` times the scores of all other seats.
    """
    total_B = sum(batch.score_B for batch in batches.values())
    for seat, batch in batches.items():
        payoff_B = batch.score_B + config.others * (total_B - batch.score_B)
        if not payoff_B.allclose(batch.payoff_B, rtol=1e-4, atol=1e-4):
            raise ValueError(
                f"seq credits {seat} for its own score and {config.others:g} times those of the others, and "
                "the payoff is another one; set payoff and algorithm.others to the same number, or payoff "
                "cooperative and algorithm.others 1, and let no player sit in a seat without learning"
            )
    credited = {}
    for seat, credit_B in credits(batches, rewards, config).items():
        batch = batches[seat]
        last_B1 = batch.response_length_B[:, None] - 1
        change_B1 = (credit_B - batch.payoff_B)[:, None].to(rewards[seat])
        credited[seat] = rewards[seat].scatter_add(1, last_B1, change_B1)
    return ppo.advantage(batches, credited, config, states)


def credits(batches: Batches, rewards: Rewards, config: Config) -> dict[str, Tensor]:
    """What each seat is credited with, [B] by seat, in the order of play."""
    credited: dict[str, Tensor] = {}
    later_B: Tensor | float = 0.0
    for i, (seat, batch) in enumerate(reversed(list(batches.items()))):
        credited[seat] = batch.score_B + config.others * later_B
        score_B, value_B = batch.score_B, expected_score(rewards[seat], batch)
        if config.calibrate:
            score_B, value_B = score_B - score_B.mean(), predicted(score_B, value_B)
        is_last = i == 0
        later_B = later_B + (value_B + config.seat_lam * (score_B - value_B) if is_last else score_B)
    return {seat: credited[seat] for seat in batches}


def predicted(score_B: Tensor, value_B: Tensor) -> Tensor:
    """What the values say of the scores, less the mean [B]: the least squares line, its slope from 0 to 1."""
    centred_B = value_B - value_B.mean()
    variance = centred_B.square().sum()
    slope = (centred_B * score_B).sum() / variance if variance > 0 else variance
    return slope.clamp(0, 1) * centred_B
