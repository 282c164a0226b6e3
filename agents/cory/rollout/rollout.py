"""Rollout of B games at once: query, pioneer, observers, scores; one `Batch` per seat.

Queries, caps and random numbers are drawn beforehand (`RolloutSpec`).

Shapes: B games, N seats, P prompt tokens, T response tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cory import rng
from cory.batch import Batch, Rows, columns, stack
from cory.distributed import ranks
from cory.generation import SamplingStrategy
from cory.policies.base import Policy
from cory.policies.scoring import make_batch, unscored_batch
from cory.runtime import signals
from cory.runtime.clock import Clock
from cory_env.types import Query
from cory_env.vector import VectorGame


@dataclass(frozen=True, kw_only=True)
class RolloutSpec:
    """Queries, caps and uniform numbers of a batch of games; they and the weights determine all responses."""

    queries: Sequence[Query]
    caps_BN: np.ndarray
    """Response cap in tokens of every game and seat."""
    uniforms_BT: Mapping[str, Tensor]
    """Uniform numbers in [0, 1) for sampling, by seat."""

    @classmethod
    def draw(
        cls,
        queries: Sequence[Query],
        *,
        seats: Sequence[str],
        games_B: np.ndarray,
        key: rng.Key,
        max_response: tuple[int, int],
    ) -> Self:
        """Draw caps and uniforms for games by their global indices; `key` is (seed, purpose, iteration)."""
        low, high = max_response
        caps_BN = rng.caps((*key, "cap"), games_B, len(seats), low=low, high=high)
        uniforms_BT = {seat: torch.from_numpy(rng.uniforms((*key, seat), games_B, high)) for seat in seats}
        return cls(queries=queries, caps_BN=caps_BN, uniforms_BT=uniforms_BT)

    @classmethod
    def interleaved(cls, specs: Sequence[Self]) -> Self:
        """Specs of the same queries as one: all games of the first query, then those of the second."""
        first = specs[0]
        uniforms_BT = {
            seat: torch.stack([spec.uniforms_BT[seat] for spec in specs], dim=1).flatten(0, 1)
            for seat in first.uniforms_BT
        }
        caps_BN = np.stack([spec.caps_BN for spec in specs], axis=1).reshape(-1, first.caps_BN.shape[1])
        queries = [query for query in first.queries for _ in specs]
        return cls(queries=queries, caps_BN=caps_BN, uniforms_BT=uniforms_BT)

    def rows(self, at: slice) -> Self:
        """The games at `at` only."""
        uniforms_BT = {seat: tensor_BT[at] for seat, tensor_BT in self.uniforms_BT.items()}
        return replace(self, queries=self.queries[at], caps_BN=self.caps_BN[at], uniforms_BT=uniforms_BT)


def play(
    game: VectorGame,
    policies_by_seat: Mapping[str, Policy],
    spec: RolloutSpec,
    *,
    clock: Clock,
    players: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Batch]:
    """Play one game per query of `spec`; the batch of every seat, in the order of play, payoffs still NaN.

    `players` respond in the other seats; their tokens are not scored.
    """
    game.reset(spec.queries, spec.caps_BN)
    seated = {**players, **policies_by_seat}
    responses: dict[str, tuple[Rows, Tensor]] = {}
    with clock.phase("sample"):
        for seat in game.seats:
            responses[seat] = sample_responses(game, seat, seated[seat], spec)
    with clock.phase("judge"):
        signals.check()
        scores_BN = game.scores()
        signals.check()
    batches = {}
    with clock.phase("statistics"):
        for i, seat in enumerate(game.seats):
            policy, (rows, logprobs_BT) = policies_by_seat.get(seat), responses[seat]
            score_B = torch.from_numpy(scores_BN[:, i]).to(rows.response_BT.device, torch.float32)
            unpaid_B = torch.full_like(score_B, torch.nan)
            batches[seat] = (
                unscored_batch(rows, score_B, unpaid_B)
                if policy is None
                else make_batch(policy, rows, logprobs_BT, score_B, unpaid_B)
            )
    signals.check()
    return batches


def play_shared(
    game: VectorGame,
    policies_by_seat: Mapping[str, Policy],
    spec: RolloutSpec,
    *,
    clock: Clock,
    players: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Batch]:
    """`play` with the games shared out among the ranks; the batches of all games, with their payoffs.

    These are computed once, from the scores of all games. An exception of one rank is raised on all.
    """
    ours = spec.rows(ranks.share(len(spec.queries)))

    def play_ours() -> tuple[dict[str, Batch], np.ndarray]:
        batches = play(game, policies_by_seat, ours, clock=clock, players=players)
        return batches if ranks.count() == 1 else moved(batches, "cpu"), game.scores()

    played = ranks.gather_results("the games", play_ours)
    payoffs_BN = torch.from_numpy(game.pay(np.concatenate([scores_BN for _, scores_BN in played])))
    batches = {}
    for i, seat in enumerate(game.seats):
        whole = stack(Batch, [parts[seat] for parts, _ in played])
        batches[seat] = replace(whole, payoff_B=payoffs_BN[:, i].to(whole.score_B))
    return moved(batches, next(iter(policies_by_seat.values())).device)


def moved(batches: Mapping[str, Batch], device: torch.device | str) -> dict[str, Batch]:
    """The batches on `device`."""
    return {
        seat: Batch(**{name: getattr(batch, name).to(device) for name in columns(Batch)})
        for seat, batch in batches.items()
    }


def sample_responses(
    game: VectorGame,
    seat: str,
    policy: Any,
    spec: RolloutSpec,
    *,
    strategy: SamplingStrategy | None = None,
) -> tuple[Rows, Tensor]:
    """Have a policy or a player respond in `seat` in every game; the rows, and its log-probs [B, T]."""
    prompt_BP, length_B = (torch.from_numpy(array).to(policy.device) for array in game.prompts(seat))
    caps_B = torch.from_numpy(np.ascontiguousarray(game.caps_BN[:, game.seats.index(seat)]))
    sampled = policy.sample(
        prompt_BP,
        length_B,
        uniforms_BT=spec.uniforms_BT[seat],
        caps_B=caps_B.to(policy.device),
        strategy=strategy,
    )
    game.respond(seat, sampled.response_BT.cpu().numpy(), sampled.response_length_B.cpu().numpy())
    annotation_BA, annotation_B = (torch.from_numpy(a).to(policy.device) for a in game.annotations(seat))
    rows = Rows(
        prompt_BP=prompt_BP,
        prompt_length_B=length_B,
        response_BT=sampled.response_BT,
        response_length_B=sampled.response_length_B,
        annotation_BA=annotation_BA,
        annotation_length_B=annotation_B,
    )
    return rows, sampled.logprobs_BT
