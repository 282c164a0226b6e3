"""Sharing: every policy also learns from the responses that the others gave to the same prompts (SEAC).

arXiv:2006.07169. Rows that a policy did not sample itself are off-policy: their advantages are multiplied by
the ratio pi(token) / mu(token) of each token, at most 1, mu being what sampled it. SEAC weights their value
losses too; here they count as any, so values learn the mean of what all policies earn from a prompt.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cory.batch import Batch
    from cory.functional.advantage import Advantage
    from cory.learner.team import Team


@dataclass(frozen=True, kw_only=True)
class SharingConfig:
    """What policies learn from beside their own responses."""

    same_view: bool = False
    """Whether each policy also learns from the other policies' responses in their seats (SEAC)."""


def shared_rows(team: Team, batches: Mapping[str, Batch]) -> dict[str, list[tuple[Batch, Advantage]]]:
    """What each policy learns from beside its own rows, by policy; before any weight moves.

    The states of the algorithm stay as they are: they count the own rows only.
    """
    from cory.policies.scoring import make_batch

    shared: dict[str, list[tuple[Batch, Advantage]]] = {name: [] for name in team.learners}
    seats, order = list(team.seating), list(team.seating.values())
    for i in range(1, len(order)):  # until every policy has sat in every seat
        rotated = replace(team, seating=dict(zip(seats, order[i:] + order[:i], strict=True)))
        policies = rotated.policies
        scored = {
            seat: make_batch(policies[seat], rows, rows.behaviour_logprobs_BT, rows.score_B, rows.payoff_B)
            for seat, rows in batches.items()
        }
        names = rotated.seating
        states = {seat: deepcopy(team.learners[name].algorithm_state) for seat, name in names.items()}
        advantages = team.algorithm.advantage(scored, rotated.rewards(scored), team.options, states)
        for seat, batch in scored.items():
            shared[rotated.seating[seat]].append((batch, weighted(batch, advantages[seat])))
    return shared


def weighted(batch: Batch, advantage: Advantage) -> Advantage:
    """The advantage times the ratio of the policy to what sampled each token, at most 1."""
    ratio_BT = (batch.old_logprobs_BT - batch.behaviour_logprobs_BT).exp().clamp(max=1.0)
    return advantage._replace(advantage_BT=advantage.advantage_BT * ratio_BT)
