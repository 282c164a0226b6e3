"""Spaces of the environments, and the conversion of turn-level actions to token ids.

Shapes: L positions of an observation, V vocabulary, N seats.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, MultiDiscrete


def observation_space(vocab_size: int, length: int, *, masked: bool) -> Any:
    """Return the space of L padded ids, with an action mask [V] beside them if `masked`."""
    ids = Box(0, vocab_size - 1, (length,), np.int64)
    return Dict(observation=ids, action_mask=Box(0, 1, (vocab_size,), np.int8)) if masked else ids


def state_space(vocab_size: int, *, seats: int, max_query: int, max_response: int) -> Box:
    """Return the space of rows in the layout of `Game.flat`."""
    size = max_query + seats * max_response + 2 * seats + 2
    return Box(0, max(vocab_size - 1, max_query, max_response, seats), (size,), np.int64)


def response_space(vocab_size: int, longest: int) -> MultiDiscrete:
    """Return the space of rows of `longest` ids."""
    return MultiDiscrete(np.full(longest, vocab_size, dtype=np.int64))


def response_ids(action: Any, *, seat: str, space: MultiDiscrete) -> list[int]:
    """Convert `action` to a list of ids; raise a ValueError that names `seat` if it is not in `space`."""
    ids = np.asarray(action)
    if ids.shape != space.shape or ids.dtype.kind not in "iu" or (ids < 0).any() or (ids >= space.nvec).any():
        raise ValueError(
            f"{seat} played {action!r}; "
            f"it must play a row of {len(space.nvec)} ids from 0 to {space.nvec[0] - 1}"
        )
    row: list[int] = ids.tolist()
    return row
