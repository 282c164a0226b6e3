"""Rollout specification: queries, response caps and random numbers of a batch of games.

Shapes: B games, N seats, T response tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cory import rng
from cory_env.types import Query


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

    def rows(self, at: slice) -> Self:
        """The games at `at` only."""
        uniforms_BT = {seat: tensor_BT[at] for seat, tensor_BT in self.uniforms_BT.items()}
        return replace(self, queries=self.queries[at], caps_BN=self.caps_BN[at], uniforms_BT=uniforms_BT)
