"""PettingZoo parallel environment: every seat gives an action per step; that of the seat to act is played."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pettingzoo import ParallelEnv

from cory_env.envs.token import raw_env
from cory_env.payoff import Payoff
from cory_env.tasks.base import Task
from cory_env.types import token_id


class parallel_env(ParallelEnv):
    """The token-level game, in which the actions of waiting seats are checked and then ignored.

    Masks (`action_mask="info"` or `"obs"`) leave a waiting seat one legal action, pad. The seat to act has 1
    under `acting` in its info. All seats stay until the game ends and are paid in its last step.
    """

    metadata: ClassVar[dict[str, Any]] = {**raw_env.metadata, "name": "cory_parallel_v0"}

    def __init__(self, task: str | Task = "echo", **options: Any) -> None:
        """Options are those of the token-level `raw_env`; `payout` must be `"end"`."""
        if options.get("payout", "end") != "end":
            raise ValueError(f"payout is {options['payout']!r}; where all seats step together it is 'end'")
        self.aec = raw_env(task, **options)
        self.possible_agents = list(self.aec.possible_agents)
        self.render_mode = self.aec.render_mode
        self.state_space = self.aec.state_space
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        """See `raw_env.observation_space`."""
        return self.aec.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """See `raw_env.action_space`."""
        return self.aec.action_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin a game; see `raw_env.reset`."""
        self.aec.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play one token of the seat to act; every seat must give a valid id."""
        if not self.agents:
            raise ValueError("the game is over and every seat has left; call reset")
        for seat in self.agents:
            token_id(actions.get(seat), seat=seat, vocab_size=int(self.aec.action_space(seat).n))
        self.aec.step(actions[self.aec.agent_selection])
        observations, infos = self._observations(), self._infos()
        rewards, terminations = dict(self.aec.rewards), dict(self.aec.terminations)
        if self.aec.game.turn is None:
            self.agents = []
        return observations, rewards, terminations, dict(self.aec.truncations), infos

    def _observations(self) -> dict[str, Any]:
        return {seat: self.aec.observe(seat) for seat in self.agents}

    def _infos(self) -> dict[str, dict[str, Any]]:
        turn = self.aec.game.turn
        return {seat: {**self.aec.infos[seat], "acting": int(seat == turn)} for seat in self.agents}

    def state(self) -> np.ndarray:
        """See `raw_env.state`."""
        return self.aec.state()

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """See `raw_env.set_payoff`."""
        self.aec.set_payoff(payoff, iteration=iteration)

    def text(self, seat: str) -> str:
        """See `raw_env.text`."""
        return self.aec.text(seat)

    def get_state(self) -> dict[str, Any]:
        """See `raw_env.get_state`."""
        return self.aec.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """See `raw_env.set_state`."""
        self.aec.set_state(state)
        self.agents = [] if self.aec.game.turn is None else list(self.possible_agents)

    def render(self) -> str | None:
        """See `raw_env.render`."""
        return self.aec.render()
