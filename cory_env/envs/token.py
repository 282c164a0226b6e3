"""PettingZoo AEC environment at token level: one step is one token of the seat to act."""

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

from cory_env.arrays import caps_of
from cory_env.game import Game
from cory_env.payoff import Payoff, check_one_game, rule
from cory_env.render import game_text
from cory_env.tasks import load
from cory_env.tasks.base import Task, annotates, annotation_ids, check_query, check_seats, checked_scores
from cory_env.types import Query, Response, one_of, response_range, seat_names, token_id
from cory_env.views import Seen, check_window, resolve_views

TokenReward = Callable[[str, tuple[int, ...], int], float]
"""(seat, the ids it had read and written, the token it then chose) -> reward of that token."""

_SAVED = (
    *("agents", "agent_selection", "rewards", "_cumulative_rewards", "terminations", "truncations"),
    *("_unpaid", "_scores", "_skip_agent_selection"),
)
"""Attributes of the env that `get_state` saves, beside the game and the random generator."""


def env(task: str | Task = "echo", **options: Any) -> AECEnv:
    """Make the token-level environment of CORY, with PettingZoo's check of the call order.

    A query, then a response from every seat in turn, token by token; then each response is scored. Every seat
    is paid the collective reward, the sum of all scores, unless `payoff` is another than "cooperative".
    Options are those of `raw_env`.
    """
    return wrappers.OrderEnforcingWrapper(raw_env(task, **options))


class raw_env(AECEnv):
    """The token-level environment without wrappers."""

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
        views: Seen | None = None,
        max_query: int | None = None,
        max_response: int | tuple[int, int] = 8,
        action_mask: str | None = None,
        token_reward: TokenReward | None = None,
        render_mode: str | None = None,
        window: int | None = None,
    ) -> None:
        """`payout="end"` pays and terminates all seats in the last step of the game.

        `payout="settle"` pays the last seat there and each earlier one on a further turn of its own, whose
        action is ignored; it is for learners that read only the acting seat's transitions.
        `max_response=(low, high)` draws every cap anew at each reset.
        """
        one_of("payout", payout, ("end", "settle"))
        one_of("action_mask", action_mask, (None, "info", "obs"))
        one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.task = load(task) if isinstance(task, str) else task
        check_seats(self.task, seats)
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
        V, seats, longest = self.task.tokenizer.vocab_size, self.possible_agents, self.cap_range[1]
        L = max(view.max_prompt(self.max_query, longest) for view in self.views) + longest
        self.observation_spaces = {seat: self._observation_space(V, L) for seat in seats}
        # A state is laid out as by `Game.flat`.
        size = self.max_query + len(seats) * (longest + 2) + 2
        self.state_space = Box(0, max(V - 1, self.max_query, longest, len(seats)), (size,), np.int64)
        self._length, self._vocab = L, V
        self.action_spaces = {seat: self._action_space() for seat in seats}

    def _observation_space(self, V: int, L: int) -> Any:
        ids = Box(0, V - 1, (L,), np.int64)
        masked = self.action_mask == "obs"
        return Dict(observation=ids, action_mask=Box(0, 1, (V,), np.int8)) if masked else ids

    def _action_space(self) -> Any:
        return Discrete(self._vocab)

    def observation_space(self, agent: str) -> Any:
        """Return the same space for every seat: ids, padded to the most that any seat can read and write."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the same space for every seat: here the ids of the vocabulary."""
        return self.action_spaces[agent]

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """Set the payoff of games that end from now on; a schedule is evaluated at `iteration`.

        ValueError for `shuffled`, which pays with the scores of other games.
        """
        check_one_game(payoff)
        self.pay = rule(payoff, len(self.possible_agents), iteration=iteration)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a game on a query of the task; `seed` determines this game and every later one.

        `options` may give the `query` (a `Query`) and the `caps` (one per seat or one for all); other entries
        are ignored.
        """
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        options = options or {}
        query: Query = options["query"] if "query" in options else self.task.query(self.np_random)
        low, high = self.cap_range
        drawn = self.np_random.integers(low, high + 1, size=len(self.possible_agents))
        caps = caps_of(options.get("caps", drawn), drawn.shape, high=high).tolist()
        check_query(query, max_query=self.max_query, vocab_size=self._vocab)
        self.game = Game(
            query,
            views=self.views,
            eos=self.task.tokenizer.eos,
            max_response=caps,
            annotate=self._annotate if annotates(self.task) else None,
        )
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection: str | None = None
        self._unpaid: list[str] = []
        self._scores: dict[str, float] = {}
        self._set_infos()

    def _annotate(self, query: Query, ids: Sequence[int], seat: str) -> tuple[int, ...]:
        """Return what later seats read behind a finished response of `seat`."""
        assert annotates(self.task)
        return annotation_ids(self.task, [query], [Response.of(ids, self.task.tokenizer, seat=seat)])[0]

    def step(self, action: Any) -> None:
        """Play one token for the selected seat; a terminated seat takes None and is removed."""
        if not self.agents:
            raise ValueError("the game is over and every seat has left; call reset")
        seat = self.agent_selection
        if self.terminations[seat]:
            self._was_dead_step(action)
            return
        tokens, turn = self._tokens_of(seat, action), self.game.turn
        self._cumulative_rewards[seat] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self._unpaid:
            self._pay([self._unpaid.pop(0)])
        else:
            self._play(seat, tokens)
        self.agent_selection = self.game.turn or next(iter(self._unpaid), self.agents[0])
        self._accumulate_rewards()
        self._set_infos()
        if self.render_mode == "human" and self.game.turn != turn:
            self.render()

    def _tokens_of(self, seat: str, action: Any) -> list[int]:
        """Return the tokens that an action of `seat` stands for; an invalid action is a ValueError."""
        return [token_id(action, seat=seat, vocab_size=self._vocab)]

    def _play(self, seat: str, tokens: Sequence[int]) -> None:
        """Play `tokens`; if they end the game, score the responses and pay the seats that are due."""
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
            tokenizer = self.task.tokenizer
            played = self.game.responses.items()
            responses = {seat: [Response.of(ids, tokenizer, seat=seat)] for seat, ids in played}
            (scores,) = checked_scores(self.task, [self.game.query], responses).tolist()
            self._scores = dict(zip(self.possible_agents, scores, strict=True))
            *earlier, last = self.agents
            self._unpaid = earlier if self.payout == "settle" else []
            self._pay([last] if self.payout == "settle" else self.agents)

    def _pay(self, seats: Sequence[str]) -> None:
        """Pay `seats` their payoffs and terminate them."""
        payoffs = self.pay(np.array([list(self._scores.values())]))[0].tolist()
        for seat in seats:
            self.rewards[seat] += payoffs[self.possible_agents.index(seat)]
            self.terminations[seat] = True

    def _ids(self, seat: str) -> tuple[int, ...]:
        """Return the prompt of `seat` and its response so far."""
        return self.game.prompt(seat) + self.game.responses[seat]

    def _set_infos(self) -> None:
        """Set each seat's info: lengths in tokens, its cap, and its score (0 until the game is over)."""
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
        """Return 1 for every id in the turn of `seat`; at any other time 1 for pad only."""
        if self.game.turn == seat:
            return np.ones(self._vocab, dtype=np.int8)
        mask = np.zeros(self._vocab, dtype=np.int8)
        mask[self.task.tokenizer.pad] = 1
        return mask

    def observe(self, agent: str) -> Any:
        """Return the prompt of a seat and its response so far, padded; the lengths are in `infos`."""
        ids = self._ids(agent)
        row = np.full(self._length, self.task.tokenizer.pad, dtype=np.int64)
        row[: len(ids)] = ids
        return {"observation": row, "action_mask": self._mask(agent)} if self.action_mask == "obs" else row

    def state(self) -> np.ndarray:
        """Return the whole game as one row, in the layout of `Game.flat`."""
        longest, pad = self.cap_range[1], self.task.tokenizer.pad
        flat = self.game.flat(max_query=self.max_query, max_response=longest, pad=pad)
        return np.array(flat, dtype=np.int64)

    def text(self, seat: str) -> str:
        """Return the response of `seat` so far as text."""
        return Response.of(self.game.responses[seat], self.task.tokenizer).text

    def get_state(self) -> dict[str, Any]:
        """Return a game in progress as plain values, for `set_state` of an env with the same options."""
        saved = {name: getattr(self, name) for name in _SAVED}
        return deepcopy(
            {"game": self.game.get_state(), "generator": self.np_random.bit_generator.state, **saved}
        )

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume the game that `get_state` returned at its token; later queries are drawn alike."""
        state = deepcopy(state)
        self.game = Game.from_state(
            state["game"],
            views=self.views,
            eos=self.task.tokenizer.eos,
            annotate=self._annotate if annotates(self.task) else None,
        )
        for name in _SAVED:
            setattr(self, name, state[name])
        self.np_random.bit_generator.state = state["generator"]
        self._set_infos()

    def render(self) -> str | None:
        """Return the game as text in mode `ansi`; print it in mode `human`, as every end of a turn does."""
        if self.render_mode is None:
            gymnasium.logger.warn('render needs a mode: make the env with render_mode="ansi" or "human"')
            return None
        human = self.render_mode == "human"
        text = game_text(
            self.game.query,
            self.game.responses,
            turn=self.game.turn,
            tokenizer=self.task.tokenizer,
            scores=self._scores,
            colour=human and sys.stdout.isatty(),
        )
        if human:
            print(text, end="\n\n")
        return None if human else text
