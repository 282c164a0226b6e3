"""The same game for learners that want an action of every seat at every step; only the turn's counts."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pettingzoo import ParallelEnv

from cory_env.env import raw_env
from cory_env.game import token_id
from cory_env.payoff import Payoff
from cory_env.tasks.base import Task


class parallel_env(ParallelEnv):
    """Token level: the seat whose turn it is writes its token; what the others play is not looked at.

    Masks (`action_mask="info"` or `"obs"`) leave a waiting seat one legal action, pad. The seat whose action
    counts has 1 under `acting` in its info. All seats stay to the end of the game and are paid there.
    """

    metadata: ClassVar[dict[str, Any]] = {**raw_env.metadata, "name": "cory_parallel_v0"}

    def __init__(self, task: str | Task = "echo", **options: Any) -> None:
        """Options are those of the token-level `raw_env`; payouts are always at the end."""
        if options.get("payout", "end") != "end":
            raise ValueError(f"payout is {options['payout']!r}; where all seats step together it is 'end'")
        self.aec = raw_env(task, **options)
        self.possible_agents = list(self.aec.possible_agents)
        self.render_mode = self.aec.render_mode
        self.state_space = self.aec.state_space
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        """As in the token-level game."""
        return self.aec.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """Any id of the vocabulary."""
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
        """One token of the seat whose turn it is; every seat must play a valid id."""
        if not self.agents:
            raise ValueError("the game is over and every seat has left; call reset")
        for seat in self.agents:
            token_id(actions.get(seat), seat=seat, vocab_size=int(self.aec.action_space(seat).n))
        self.aec.step(actions[self.aec.agent_selection])
        told = (
            self._observations(),
            dict(self.aec.rewards),
            dict(self.aec.terminations),
            dict(self.aec.truncations),
        )
        infos = self._infos()
        if self.aec.game.turn is None:
            self.agents = []
        return (*told, infos)

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
        """What `seat` has said so far."""
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
