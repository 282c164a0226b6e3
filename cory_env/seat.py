"""The same game for one seat as a `gymnasium.Env`: the partners in the other seats are played for you."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from cory_env.env import raw_env
from cory_env.game import one_of
from cory_env.payoff import Payoff
from cory_env.tasks.base import Task
from cory_env.turns import response_ids, response_space

Partner = Callable[[tuple[int, ...], int, np.random.Generator], Sequence[int]]
"""(prompt, cap, source of chance) -> a response: ids, read to the first EOS or to the cap."""


def random_partner(
    prompt: tuple[int, ...], cap: int, chance: np.random.Generator, *, vocab_size: int
) -> list[int]:
    """Any ids, each as likely as another."""
    ids: list[int] = chance.integers(vocab_size, size=cap).tolist()
    return ids


def seat_env(seat: str = "pioneer_0", task: str | Task = "echo", **options: Any) -> "SeatEnv":
    """The game for `seat`; see `SeatEnv` for the options."""
    return SeatEnv(seat, task, **options)


class SeatEnv(gymnasium.Env[Any, Any]):
    """One game per episode, begun where `seat` acts first; its reward is its payoff, on its last token.

    Partners respond at once, so the step that finishes the response of `seat` ends the episode.
    """

    # Gymnasium declares it without ClassVar.
    metadata = {"render_modes": raw_env.metadata["render_modes"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        seat: str = "pioneer_0",
        task: str | Task = "echo",
        *,
        partners: Partner | Mapping[str, Partner] | None = None,
        level: str = "token",
        **options: Any,
    ) -> None:
        """`partners`: one for all other seats, or one by seat; None plays random tokens.

        `level="turn"` makes a step a whole response (MultiDiscrete). Other options are those of the
        token-level `raw_env`; payouts are always at the end.
        """
        one_of("level", level, ("token", "turn"))
        one_of("payout", options.get("payout", "end"), ("end",))
        if level == "turn":
            one_of("action_mask", options.get("action_mask"), (None,))
        self.aec = raw_env(task, **options)
        one_of("seat", seat, self.aec.possible_agents)
        self.seat, self.level = seat, level
        others = [name for name in self.aec.possible_agents if name != seat]
        self._tokens = self.aec.action_space(seat)
        chance = partial(random_partner, vocab_size=int(self._tokens.n))
        given = partners if isinstance(partners, Mapping) else dict.fromkeys(others, partners or chance)
        if set(given) != set(others):
            raise ValueError(
                f"partners are given for {', '.join(given) or 'no seat'}; "
                f"{seat} plays with {', '.join(others) or 'nobody'}"
            )
        self.partners: Mapping[str, Partner] = given
        self.render_mode = self.aec.render_mode
        self.observation_space = self.aec.observation_space(seat)
        self._rows = response_space(int(self._tokens.n), self.aec.cap_range[1])
        self.action_space = self._tokens if level == "token" else self._rows

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a game and let the seats before this one respond; `seed` fixes their chance too."""
        super().reset(seed=seed)
        self.aec.reset(seed=seed, options=options)
        self._play_partners()
        return self.aec.observe(self.seat), self.aec.infos[self.seat]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Write one token, or one response; then the seats after this one respond."""
        if self.aec.terminations[self.seat]:
            raise ValueError("the game is over; call reset")
        reward = 0.0
        for token in self._read(action):
            self.aec.step(token)
            reward += self.aec.rewards[self.seat]
        reward += self._play_partners()
        over = self.aec.terminations[self.seat]
        return self.aec.observe(self.seat), reward, over, False, self.aec.infos[self.seat]

    def _read(self, action: Any) -> list[Any]:
        if self.level == "token":
            return [action]
        return self.aec.game.begun(response_ids(action, seat=self.seat, space=self._rows))

    def _play_partners(self) -> float:
        """Let the seats before the next turn of this one respond; what this one is paid meanwhile."""
        reward, game = 0.0, self.aec.game
        while (turn := game.turn) not in (self.seat, None):
            cap = game.caps[game.seats.index(turn)]
            for token in game.begun(list(self.partners[turn](game.prompt(turn), cap, self.np_random))):
                self.aec.step(token)
                reward += self.aec.rewards[self.seat]
        return reward

    def action_masks(self) -> np.ndarray:
        """True where this seat may play, as sb3-contrib's MaskablePPO asks: everywhere, it being its turn."""
        return np.ones(
            int(np.sum(self._rows.nvec)) if self.level == "turn" else int(self._tokens.n), dtype=bool
        )

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """See `raw_env.set_payoff`."""
        self.aec.set_payoff(payoff, iteration=iteration)

    def render(self) -> Any:
        """See `raw_env.render`."""
        return self.aec.render()
