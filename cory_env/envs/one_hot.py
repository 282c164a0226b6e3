"""One-hot observations: wrappers that turn token ids into one-hot vectors, for small vocabularies."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper


def one_hot(env: Any) -> Any:
    """Wrap any environment of the game so that L ids become L x V zeros and ones (flat, float32).

    `state` is encoded too. A mask in the observation is left unchanged.
    """
    for kind, wrapper in ((AECEnv, _OneHot), (ParallelEnv, _OneHotParallel), (gymnasium.Env, _OneHotSeat)):
        if isinstance(env, kind):
            return wrapper(env)
    raise ValueError(f"{env!r} is no environment; give an AECEnv, a ParallelEnv or a gymnasium.Env")


class _Spaces:
    """What wrappers of environments with several seats share."""

    env: Any

    def __init__(self, env: Any) -> None:
        super().__init__(env)  # type: ignore[call-arg]
        self._spaces = {seat: _space(env.observation_space(seat)) for seat in env.possible_agents}
        self.state_space = _space(env.state_space)

    def observation_space(self, agent: str) -> Space[Any]:
        return self._spaces[agent]

    def state(self) -> np.ndarray:
        return _vectors(self.env.state(), self.env.state_space)


class _OneHot(_Spaces, BaseWrapper):
    def observe(self, agent: str) -> Any:
        return _encode(self.env.observe(agent), self.env.observation_space(agent))


class _OneHotParallel(_Spaces, BaseParallelWrapper):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observations, infos = super().reset(seed=seed, options=options)
        return self._encode_all(observations), infos

    def step(self, actions: dict[str, Any]) -> Any:
        observations, *rest = super().step(actions)
        return (self._encode_all(observations), *rest)

    def _encode_all(self, observations: dict[str, Any]) -> dict[str, Any]:
        return {seat: _encode(row, self.env.observation_space(seat)) for seat, row in observations.items()}


class _OneHotSeat(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = _space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        return _encode(observation, self.env.observation_space)


def _space(ids: Any) -> Space[Any]:
    if isinstance(ids, Dict):
        return Dict({**ids.spaces, "observation": _space(ids["observation"])})
    return Box(0, 1, (ids.shape[0] * _width(ids),), np.float32)


def _width(ids: Any) -> int:
    return int(ids.high[0]) + 1


def _encode(observation: Any, space: Any) -> Any:
    """Encode an observation of ids out of `space`, which may hold a mask beside them."""
    if isinstance(observation, dict):
        return {**observation, "observation": _vectors(observation["observation"], space["observation"])}
    return _vectors(observation, space)


def _vectors(ids: np.ndarray, space: Any) -> np.ndarray:
    flat: np.ndarray = np.eye(_width(space), dtype=np.float32)[ids].reshape(-1)
    return flat
