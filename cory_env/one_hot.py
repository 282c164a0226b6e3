"""Token ids as one-hot vectors, for small vocabularies and learners that read numbers as sizes."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper


def one_hot(env: Any) -> Any:
    """`env`, any view of the game, with observations of L x V zeros and ones (flat, float32) for L ids.

    `state` becomes a row of such vectors too. A mask in the observation stays as it is.
    """
    for kind, wrapper in ((AECEnv, _OneHot), (ParallelEnv, _OneHotParallel), (gymnasium.Env, _OneHotSeat)):
        if isinstance(env, kind):
            return wrapper(env)
    raise ValueError(f"{env!r} is no view of the game; give an AECEnv, a ParallelEnv or a gymnasium.Env")


class _OneHot(BaseWrapper):
    def __init__(self, env: AECEnv) -> None:
        super().__init__(env)
        self._spaces = {seat: _space(env.observation_space(seat)) for seat in env.possible_agents}
        self.state_space = _space(env.state_space)

    def observation_space(self, agent: str) -> Space[Any]:
        return self._spaces[agent]

    def observe(self, agent: str) -> Any:
        return _encoded(super().observe(agent), self.env.observation_space(agent))

    def state(self) -> np.ndarray:
        return _vectors(self.env.state(), self.env.state_space)


class _OneHotParallel(BaseParallelWrapper):
    def __init__(self, env: ParallelEnv) -> None:
        super().__init__(env)
        self._spaces = {seat: _space(env.observation_space(seat)) for seat in env.possible_agents}
        self.state_space = _space(env.state_space)

    def observation_space(self, agent: str) -> Space[Any]:
        return self._spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        seen, infos = super().reset(seed=seed, options=options)
        return self._all(seen), infos

    def step(self, actions: dict[str, Any]) -> Any:
        seen, *rest = super().step(actions)
        return (self._all(seen), *rest)

    def state(self) -> np.ndarray:
        return _vectors(self.env.state(), self.env.state_space)

    def _all(self, seen: dict[str, Any]) -> dict[str, Any]:
        return {seat: _encoded(row, self.env.observation_space(seat)) for seat, row in seen.items()}


class _OneHotSeat(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = _space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        return _encoded(observation, self.env.observation_space)


def _space(ids: Any) -> Space[Any]:
    if isinstance(ids, Dict):
        return Dict({**ids.spaces, "observation": _space(ids["observation"])})
    return Box(0, 1, (ids.shape[0] * _width(ids),), np.float32)


def _width(ids: Any) -> int:
    return int(ids.high[0]) + 1


def _encoded(seen: Any, space: Any) -> Any:
    if isinstance(seen, dict):
        return {**seen, "observation": _vectors(seen["observation"], space["observation"])}
    return _vectors(seen, space)


def _vectors(ids: np.ndarray, space: Any) -> np.ndarray:
    flat: np.ndarray = np.eye(_width(space), dtype=np.float32)[ids].reshape(-1)
    return flat
