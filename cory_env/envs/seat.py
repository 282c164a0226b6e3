"""Gymnasium environment of one seat: partner functions play the other seats."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from cory_env.envs.token import raw_env
from cory_env.payoff import Payoff
from cory_env.tasks.base import Task
from cory_env.types import one_of

Partner = Callable[[tuple[int, ...], int, np.random.Generator], Sequence[int]]
"""(prompt, cap, random generator) -> ids of a response, cut after the first EOS or at the cap."""


class seat_env(gymnasium.Env[Any, Any]):
    """One game per episode, which starts when `seat` acts first; the reward is its payoff, on its last token.

    Partners respond within a step, so the step that finishes the response of `seat` ends the episode.
    """

    # Gymnasium declares it without ClassVar.
    metadata = {"render_modes": raw_env.metadata["render_modes"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        seat: str = "pioneer_0",
        task: str | Task = "echo",
        *,
        partners: Partner | Mapping[str, Partner] | None = None,
        **options: Any,
    ) -> None:
        """`partners` is one function for all other seats, or one by seat; None plays random tokens.

        Other options are those of the token-level `raw_env`; `payout` must be `"end"`.
        """
        one_of("payout", options.get("payout", "end"), ("end",))
        self.aec = raw_env(task, **options)
        one_of("seat", seat, self.aec.possible_agents)
        self.seat = seat
        others = [name for name in self.aec.possible_agents if name != seat]
        self.action_space: Any = self.aec.action_space(seat)
        if not isinstance(partners, Mapping):
            partners = dict.fromkeys(others, partners or self._random_partner)
        if set(partners) != set(others):
            raise ValueError(
                f"partners are given for {', '.join(partners) or 'no seat'}; "
                f"{seat} plays with {', '.join(others) or 'no other seat'}"
            )
        self.partners: Mapping[str, Partner] = partners
        self._generator = np.random.default_rng()
        self.render_mode = self.aec.render_mode
        self.observation_space = self.aec.observation_space(seat)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a game and let the seats before this one respond; `seed` seeds the partners too."""
        super().reset(seed=seed)
        if seed is not None:  # not the stream that draws the query: partners could tell it
            self._generator = np.random.default_rng((seed, 1))
        self.aec.reset(seed=seed, options=options)
        self._play_partners()
        return self.aec.observe(self.seat), self.aec.infos[self.seat]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one token; if it ends the response of this seat, the later seats respond."""
        if self.aec.terminations[self.seat]:
            raise ValueError("the game is over; call reset")
        self.aec.step(action)
        reward = self.aec.rewards[self.seat] + self._play_partners()
        over = self.aec.terminations[self.seat]
        return self.aec.observe(self.seat), reward, over, False, self.aec.infos[self.seat]

    def _play_partners(self) -> float:
        """Let other seats respond until this seat is to act or the game ends; return its reward meanwhile."""
        reward, game = 0.0, self.aec.game
        while (turn := game.turn) not in (self.seat, None):
            cap = game.caps[game.seats.index(turn)]
            for token in game.begun(list(self.partners[turn](game.prompt(turn), cap, self._generator))):
                self.aec.step(token)
                reward += self.aec.rewards[self.seat]
        return reward

    def _random_partner(self, _prompt: tuple[int, ...], cap: int, rng: np.random.Generator) -> list[int]:
        return [int(id) for id in rng.integers(self.action_space.n, size=cap)]

    def action_masks(self) -> np.ndarray:
        """Return the mask that sb3-contrib's MaskablePPO calls for: True for every action, in its turn."""
        return np.ones(int(self.action_space.n), dtype=bool)

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """See `raw_env.set_payoff`."""
        self.aec.set_payoff(payoff, iteration=iteration)

    def render(self) -> Any:
        """See `raw_env.render`."""
        return self.aec.render()
