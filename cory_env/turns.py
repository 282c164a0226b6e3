"""The same game in larger steps: one step = one whole response of the seat whose turn it is."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import MultiDiscrete
from pettingzoo import AECEnv
from pettingzoo.utils import wrappers

from cory_env.env import raw_env as token_level
from cory_env.tasks.base import Task


def env(task: str | Task = "echo", **options: Any) -> AECEnv:
    """The game, a response at a time, with PettingZoo's check of the call order. Options are `raw_env`'s."""
    return wrappers.OrderEnforcingWrapper(raw_env(task, **options))


class raw_env(token_level):
    """As the token-level game; an action is a row of `max_response` ids, read to the first EOS or the cap."""

    metadata: ClassVar[dict[str, Any]] = {**token_level.metadata, "name": "cory_turn_v0"}

    def __init__(self, task: str | Task = "echo", *, action_mask: str | None = None, **options: Any) -> None:
        """Options are those of the token-level `raw_env`, but for the mask: every row is legal here."""
        if action_mask is not None:
            raise ValueError(
                f"action_mask is {action_mask!r}; a step that is a whole response may be any row of ids, "
                "so there is nothing to mask: leave it None"
            )
        super().__init__(task, **options)

    def _action_space(self) -> MultiDiscrete:
        return response_space(self._vocab, self.cap_range[1])

    def _read(self, seat: str, action: Any) -> list[int]:
        ids = response_ids(action, seat=seat, space=self.action_spaces[seat])
        return ids if self._unpaid else self.game.begun(ids)


def response_space(vocab_size: int, longest: int) -> MultiDiscrete:
    """Rows of `longest` ids."""
    return MultiDiscrete(np.full(longest, vocab_size, dtype=np.int64))


def response_ids(action: Any, *, seat: str, space: MultiDiscrete) -> list[int]:
    """`action` as the row of ids it is, refused unless it lies in `space`."""
    ids = np.asarray(action)
    if ids.shape != space.shape or ids.dtype.kind not in "iu" or (ids < 0).any() or (ids >= space.nvec).any():
        raise ValueError(
            f"{seat} played {action!r}; "
            f"it must play a row of {len(space.nvec)} ids from 0 to {space.nvec[0] - 1}"
        )
    row: list[int] = ids.tolist()
    return row
