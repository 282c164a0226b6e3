"""PettingZoo AEC environment at turn level: one step is one whole response of the seat to act."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import MultiDiscrete
from pettingzoo import AECEnv
from pettingzoo.utils import wrappers

from cory_env.envs.token import raw_env as token_env
from cory_env.tasks.base import Task


def env(task: str | Task = "echo", **options: Any) -> AECEnv:
    """Make the turn-level environment, with PettingZoo's check of the call order; options of `raw_env`."""
    return wrappers.OrderEnforcingWrapper(raw_env(task, **options))


class raw_env(token_env):
    """The turn-level environment without wrappers.

    An action is a row of `max_response` ids, of which those up to the first EOS or the cap are played.
    """

    metadata: ClassVar[dict[str, Any]] = {**token_env.metadata, "name": "cory_turn_v0"}

    def __init__(self, task: str | Task = "echo", *, action_mask: str | None = None, **options: Any) -> None:
        """Options are those of the token-level `raw_env`, without a mask: every row is legal."""
        if action_mask is not None:
            raise ValueError(
                f"action_mask is {action_mask!r}; a step that is a whole response may be any row of ids, "
                "so there is nothing to mask: leave it None"
            )
        super().__init__(task, **options)

    def _action_space(self) -> MultiDiscrete:
        return MultiDiscrete(np.full(self.cap_range[1], self._vocab, dtype=np.int64))

    def _tokens_of(self, seat: str, action: Any) -> list[int]:
        ids, longest = np.asarray(action), self.cap_range[1]
        if ids.shape != (longest,) or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= self._vocab:
            raise ValueError(
                f"{seat} played {action!r}; it must play a row of {longest} ids from 0 to {self._vocab - 1}"
            )
        row: list[int] = ids.tolist()
        return row if self._unpaid else self.game.begun(row)
