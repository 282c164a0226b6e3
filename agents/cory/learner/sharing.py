"""Learning from other policies' responses, and from one's own in another view.

`same_view` (SEAC, arXiv:2006.07169): every policy also learns from the responses that the other policies gave
in the same seats, to the same prompts. `both_views`: an observer's response that scored more than the
pioneer's is also learned from under the pioneer's prompt, so that what reading brought is there without it.

Rows that a policy did not sample itself, or not from this prompt, are off-policy: their advantages are
multiplied by the truncated ratio pi(token) / mu(token) of each token, mu being what sampled it.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cory.functional.advantage import Advantage

if TYPE_CHECKING:
    from cory.algorithms.base import Algorithm
    from cory.batch import Batch
    from cory.learner.team import Team
    from cory.policies.base import Policy

Shared = dict[str, list[tuple["Batch", Advantage]]]
"""Rows that each policy learns from beside its own, by policy."""


@dataclass(frozen=True, kw_only=True)
class SharingConfig:
    """What policies learn from beside their own responses."""

    same_view: bool = False
    """Whether each policy also learns from the other policies' responses in their seats (SEAC)."""

    both_views: bool = False
    """Whether an observer's response that beat the pioneer's is also learned from under the pioneer's
    prompt."""

    truncate: float = 1.0
    """Largest ratio by which such tokens count."""

    def __post_init__(self) -> None:
        if not 0 < self.truncate < float("inf"):
            raise ValueError(f"sharing.truncate is {self.truncate}; give a finite number above 0")


def shared_rows(
    team: Team, batches: Mapping[str, Batch], algorithm: Algorithm, options: Any, config: SharingConfig
) -> Shared:
    """What each policy learns from beside its own rows; before any weight moves."""
    shared: Shared = {name: [] for name in team.learners}
    if config.same_view:
        for rotated in rotations(team):
            for seat, row in of_other_seating(rotated, batches, algorithm, options, config.truncate).items():
                shared[rotated.seating[seat]].append(row)
    if config.both_views:
        first, *observers = batches
        for seat in observers:
            better = in_first_view(team.policy(seat), batches[seat], batches[first], config.truncate)
            if better is not None:
                shared[team.seating[seat]].append(better)
    return shared


def rotations(team: Team) -> list[Team]:
    """The other seatings that seat every policy in every seat once."""
    seats, names = list(team.seating), list(team.seating.values())
    turns = [names[i:] + names[:i] for i in range(1, len(names))]
    return [replace(team, seating=dict(zip(seats, turn, strict=True))) for turn in turns]


def of_other_seating(
    team: Team, batches: Mapping[str, Batch], algorithm: Algorithm, options: Any, truncate: float
) -> dict[str, tuple[Batch, Advantage]]:
    """The games as if the policies of `team` had played them, by seat."""
    from cory.policies.scoring import make_batch

    scored = {
        seat: make_batch(team.policy(seat), batch, batch.behaviour_logprobs_BT, batch.score_B, batch.payoff_B)
        for seat, batch in batches.items()
    }
    states = {seat: team.learners[name].algorithm_state for seat, name in team.seating.items()}
    advantages = algorithm.advantage(scored, team.rewards(scored), options, states)
    return {seat: (batch, weighted(batch, advantages[seat], truncate)) for seat, batch in scored.items()}


def in_first_view(
    policy: Policy, batch: Batch, first: Batch, truncate: float
) -> tuple[Batch, Advantage] | None:
    """The responses that beat those of the first seat, under its prompt; None if there are none.

    Their advantage is the difference of the scores over its standard deviation in the batch, at every token;
    the values are their own targets.
    """
    from cory.policies.scoring import make_batch

    difference_B = batch.score_B - first.score_B
    better_X = (difference_B > 0).nonzero().squeeze(1)
    if not len(better_X):
        return None
    chosen, prompts = batch.take(better_X), first.take(better_X)
    rows = replace(chosen, prompt_BP=prompts.prompt_BP, prompt_length_B=prompts.prompt_length_B)
    scored = make_batch(policy, rows, chosen.behaviour_logprobs_BT, chosen.score_B, chosen.score_B)
    gain_X = difference_B[better_X] / (difference_B.std() + 1e-4)
    advantage = Advantage(gain_X[:, None].where(scored.mask_BT, 0.0), scored.values_BT)
    return scored, weighted(scored, advantage, truncate)


def weighted(batch: Batch, advantage: Advantage, truncate: float) -> Advantage:
    """The advantage times the ratio of the policy to what sampled each token, at most `truncate`."""
    ratio_BT = (batch.old_logprobs_BT - batch.behaviour_logprobs_BT).exp().clamp(max=truncate)
    return advantage._replace(advantage_BT=advantage.advantage_BT * ratio_BT)
