"""The PettingZoo face of the game: one step = one token of the seat whose turn it is."""

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.utils import seeding
from pettingzoo import AECEnv
from pettingzoo.utils import wrappers

from cory_env.game import Game, Query, Response, one_of, response_range, seat_names, token_id
from cory_env.payoff import Payoff, matrix, pay
from cory_env.render import table
from cory_env.tasks import load
from cory_env.tasks.base import Task, check_query, checked_scores
from cory_env.views import View, check_window, resolve_views

TokenReward = Callable[[str, tuple[int, ...], int], float]
"""(seat, the ids it had read and written, the token it then chose) -> reward of that token."""

_CARRIED = (
    *("agents", "agent_selection", "rewards", "_cumulative_rewards", "terminations", "truncations"),
    *("_unpaid", "_scores", "_skip_agent_selection"),
)
"""What `get_state` holds of the env itself, beside the game and the generator."""


def env(task: str | Task = "echo", **options: Any) -> AECEnv:
    """The game with PettingZoo's check of the call order. Options are those of `raw_env`."""
    return wrappers.OrderEnforcingWrapper(raw_env(task, **options))


class raw_env(AECEnv):
    """A query, then a response from every seat in turn, token by token; then every seat is paid."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "cory_v0",
        "render_modes": ["ansi", "human"],
        "is_parallelizable": False,
    }

    def __init__(
        self,
        task: str | Task = "echo",
        *,
        seats: int = 2,
        payoff: Payoff = "cooperative",
        payout: str = "end",
        views: str | Sequence[View] | None = None,
        max_query: int | None = None,
        max_response: int | tuple[int, int] = 8,
        action_mask: str | None = None,
        token_reward: TokenReward | None = None,
        render_mode: str | None = None,
        window: int | None = None,
    ) -> None:
        """`payout="end"` pays and ends all seats in the game's last step; `"settle"` pays the last seat
        there and each earlier one on a further turn of its own, whose action is ignored: for learners that
        look at no row but the acting seat's. `max_response=(low, high)` draws every cap anew at each reset.
        """
        one_of("payout", payout, ("end", "settle"))
        one_of("action_mask", action_mask, (None, "info", "obs"))
        one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.task = load(task) if isinstance(task, str) else task
        self.payout, self.action_mask, self.token_reward = payout, action_mask, token_reward
        self.render_mode = render_mode
        self.possible_agents = list(seat_names(seats))
        self.views = resolve_views(self.task, seats=seats, views=views)
        self.max_query = self.task.max_query if max_query is None else max_query
        self.cap_range = response_range(max_response)
        self.set_payoff(payoff)
        if window is not None:
            check_window(self.views, max_query=self.max_query, max_response=self.cap_range[1], window=window)
        self._make_spaces()
        self.np_random, _ = seeding.np_random()

    def _make_spaces(self) -> None:
        V, N, longest = self.task.tokenizer.vocab_size, len(self.possible_agents), self.cap_range[1]
        L = max(view.max_prompt(self.max_query, longest) for view in self.views) + longest
        self.observation_spaces: dict[str, Any] = {}
        for seat in self.possible_agents:
            ids, mask = Box(0, V - 1, (L,), np.int64), Box(0, 1, (V,), np.int8)
            masked = self.action_mask == "obs"
            self.observation_spaces[seat] = Dict(observation=ids, action_mask=mask) if masked else ids
        size = self.max_query + N * longest + 2 * N + 2
        self.state_space = Box(0, max(V - 1, self.max_query, longest, N), (size,), np.int64)
        self._length, self._vocab = L, V
        self.action_spaces = {seat: self._action_space() for seat in self.possible_agents}

    def _action_space(self) -> Any:
        return Discrete(self._vocab)

    def observation_space(self, agent: str) -> Any:
        """The same for every seat: ids padded to the longest any of them may read and write."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """What a step of any seat is chosen from: here any id of the vocabulary."""
        return self.action_spaces[agent]

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """Mix scores by `payoff` in games that end from now on; a schedule by what it is at `iteration`."""
        self.W = matrix(payoff, len(self.possible_agents), iteration=iteration)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a game on a query of the task; `seed` fixes it and every later one.

        `options` may give the `query` (a `Query`) and the `caps` (one per seat); other entries are ignored.
        """
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        given = options or {}
        query: Query = given["query"] if "query" in given else self.task.query(self.np_random)
        low, high = self.cap_range
        drawn = self.np_random.integers(low, high + 1, size=len(self.possible_agents))
        caps = [int(cap) for cap in given.get("caps", drawn)]
        check_query(query, max_query=self.max_query, vocab_size=self._vocab)
        if max(caps) > high:
            raise ValueError(f"caps {caps} go beyond max_response {high}, for which the spaces were made")
        self.game = Game(query, views=self.views, eos=self.task.tokenizer.eos, max_response=caps)
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection: str | None = None
        self._unpaid: list[str] = []
        self._scores: dict[str, float] = {}
        self._inform()

    def step(self, action: Any) -> None:
        """Play one token for the seat selected; a seat whose game is over takes None and leaves."""
        if not self.agents:
            raise ValueError("the game is over and every seat has left; call reset")
        seat = self.agent_selection
        if self.terminations[seat]:
            self._was_dead_step(action)
            return
        tokens = self._read(seat, action)
        self._cumulative_rewards[seat] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self._unpaid:
            self._pay([self._unpaid.pop(0)])
        else:
            self._write(seat, tokens)
        self.agent_selection = self.game.turn or next(iter(self._unpaid), self.agents[0])
        self._accumulate_rewards()
        self._inform()
        if self.render_mode == "human" and self.agent_selection != seat:
            self.render()

    def _read(self, seat: str, action: Any) -> list[int]:
        """The tokens that an action of `seat` stands for; refused where it is none."""
        return [token_id(action, seat=seat, vocab_size=self._vocab)]

    def _write(self, seat: str, tokens: Sequence[int]) -> None:
        """Play `tokens`; where they end the game, score the responses and pay whom `payout` pays now."""
        for token in tokens:
            if self.token_reward is not None:
                reward = float(self.token_reward(seat, self._ids(seat), token))
                if not np.isfinite(reward):
                    raise ValueError(
                        f"token_reward gave {reward} for token {token} of {seat}; it must be finite"
                    )
                self.rewards[seat] += reward
            self.game.play(token)
        if self.game.turn is None:
            said, tokenizer = self.game.responses, self.task.tokenizer
            responses = [Response.of(ids, tokenizer, seat=seat) for seat, ids in said.items()]
            scores = checked_scores(self.task, [self.game.query] * len(responses), responses)
            self._scores = dict(zip(self.possible_agents, scores.tolist(), strict=True))
            *earlier, last = self.agents
            self._unpaid = earlier if self.payout == "settle" else []
            self._pay([last] if self.payout == "settle" else self.agents)

    def _pay(self, seats: Sequence[str]) -> None:
        payoffs = pay(self.W, np.array([list(self._scores.values())]))[0].tolist()
        for seat in seats:
            self.rewards[seat] += payoffs[self.possible_agents.index(seat)]
            self.terminations[seat] = True

    def _ids(self, seat: str) -> tuple[int, ...]:
        """What `seat` has read and written."""
        return self.game.prompt(seat) + self.game.responses[seat]

    def _inform(self) -> None:
        """Numbers about each seat: lengths in tokens, its cap, and its score (0 until the game is over)."""
        responses = self.game.responses
        self.infos: dict[str, dict[str, Any]] = {
            seat: {
                "prompt_length": len(self.game.prompt(seat)),
                "response_length": len(responses[seat]),
                "cap": self.game.caps[self.possible_agents.index(seat)],
                "score": self._scores.get(seat, 0.0),
            }
            for seat in self.agents
        }
        if self.action_mask == "info":
            for seat, info in self.infos.items():
                info["action_mask"] = self._mask(seat)

    def _mask(self, seat: str) -> np.ndarray:
        """1 where `seat` may play: any id in its turn; pad alone while it waits, is settled, or has left."""
        if self.game.turn == seat:
            return np.ones(self._vocab, dtype=np.int8)
        mask = np.zeros(self._vocab, dtype=np.int8)
        mask[self.task.tokenizer.pad] = 1
        return mask

    def observe(self, agent: str) -> Any:
        """The prompt of any seat and its response so far, at any time, padded; lengths are in `infos`."""
        ids = self._ids(agent)
        row = np.full(self._length, self.task.tokenizer.pad, dtype=np.int64)
        row[: len(ids)] = ids
        return {"observation": row, "action_mask": self._mask(agent)} if self.action_mask == "obs" else row

    def state(self) -> np.ndarray:
        """The whole game in numbers, laid out as `Game.flat` says."""
        longest, pad = self.cap_range[1], self.task.tokenizer.pad
        flat = self.game.flat(max_query=self.max_query, max_response=longest, pad=pad)
        return np.array(flat, dtype=np.int64)

    def text(self, seat: str) -> str:
        """What `seat` has said so far."""
        return self.task.tokenizer.decode(self.game.responses[seat])

    def get_state(self) -> dict[str, Any]:
        """A game in progress as plain values, to be given to `set_state` of an env made alike."""
        mine = {name: getattr(self, name) for name in _CARRIED}
        return deepcopy(
            {"game": self.game.get_state(), "generator": self.np_random.bit_generator.state, **mine}
        )

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume the game that `get_state` described at the very token; later queries are the same too."""
        state = deepcopy(state)
        self.game = Game.from_state(state["game"], views=self.views, eos=self.task.tokenizer.eos)
        for name in _CARRIED:
            setattr(self, name, state[name])
        self.np_random.bit_generator.state = state["generator"]
        self._inform()

    def render(self) -> str | None:
        """The table: returned in mode `ansi`, printed in mode `human`, there also whenever a turn ends."""
        if self.render_mode is None:
            gymnasium.logger.warn('render needs a mode: make the env with render_mode="ansi" or "human"')
            return None
        human = self.render_mode == "human"
        colour = human and sys.stdout.isatty()
        shown = table(self.game, self.task.tokenizer, scores=self._scores, colour=colour)
        if human:
            print(shown, end="\n\n")
        return None if human else shown
