"""Calling conventions of judges: functions of texts, or of prompts and completions as in TRL.

A function with a parameter called `completions`, `prompts` or `completion_ids` (the token ids of the
responses), or with `**columns` only, is called by names as `f(prompts, completions, **columns)`, any other as
`f(texts)`; both return a list of scores, and may be async. One that names `seat` gets the seat of each
completion, one that names `responses` the texts of each completion's whole game, a dict by seat; by these
names it needs no other parameter.
"""

import asyncio
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from threading import Thread
from typing import Any, NamedTuple

from cory_env.tokenizer import Message

Prompt = str | Sequence[Message]
"""A text, or the messages of a chat."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text, a chat line by line."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


Judge = Callable[..., Sequence[float]]
"""A function in either convention, or a `CaseJudge`: one finite number per case, higher is better."""


@dataclass(frozen=True, kw_only=True)
class Cases:
    """A batch of prompts and responses to score; all sequences are equally long."""

    prompts: Sequence[Prompt]
    """The prompts as the data set has them."""

    answers: Sequence[str]
    """The responses as text."""

    texts: Sequence[str]
    """Each prompt and its response as one text."""

    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The other columns of the data, one value per case."""

    ids: Sequence[Sequence[int]] | None = None
    """The responses as token ids, their end included, where they are known."""

    seats: Sequence[str] = ()
    """The seat of each response; empty where each was written standalone, by `pioneer_0`."""

    games: Sequence[Mapping[str, str]] = ()
    """The texts of each response's game by seat; empty where each was written standalone."""

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, part: slice) -> "Cases":
        return Cases(
            prompts=self.prompts[part],
            answers=self.answers[part],
            texts=self.texts[part],
            columns={name: values[part] for name, values in self.columns.items()},
            ids=None if self.ids is None else self.ids[part],
            seats=self.seats[part],
            games=self.games[part],
        )

    @property
    def named(self) -> dict[str, list[Any]]:
        """What a reward function can ask for by name."""
        ids = {} if self.ids is None else {"completion_ids": [list(response) for response in self.ids]}
        columns = {name: list(values) for name, values in self.columns.items()}
        return {**ids, **columns, "prompts": list(self.prompts), "completions": self.completions}

    @property
    def of_games(self) -> dict[str, list[Any]]:
        """What a reward function that names `seat` or `responses` gets by these names."""
        games = self.games or [{"pioneer_0": response} for response in self.answers]
        seats = self.seats or ["pioneer_0"] * len(self)
        return {"seat": list(seats), "responses": [dict(game) for game in games]}

    @property
    def completions(self) -> list[str | list[Message]]:
        """The responses as reward functions take them: a text for a text, a message list for a chat."""
        return [
            response if isinstance(prompt, str) else [{"role": "assistant", "content": response}]
            for prompt, response in zip(self.prompts, self.answers, strict=True)
        ]


class CaseJudge(ABC):
    """A judge of whole cases; called with texts, it takes them as responses to empty prompts."""

    @abstractmethod
    def judge(self, cases: Cases) -> list[float]:
        """Return one finite number per case."""

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Score responses to empty prompts."""
        return self.judge(Cases(prompts=[""] * len(texts), answers=texts, texts=texts))

    @property
    def reads_games(self) -> bool:
        """Whether it reads `Cases.seats` or `Cases.games`."""
        return False


OF_GAMES = frozenset({"seat", "responses"})
"""Parameters by which a function asks for the game of each response."""

NAMED = frozenset({"prompts", "completions", "completion_ids"})
"""Parameters by which a function is known as one that is called by names, as in TRL."""


class Signature(NamedTuple):
    """The parameters of a judge function."""

    takes: frozenset[str]
    """Names of its parameters."""

    needs: tuple[str, ...]
    """Columns without which it cannot be called."""

    free: bool
    """True if it takes any column (`**columns`)."""

    by_name: bool
    """True for a function of prompts and completions, False for one of texts."""

    problem: str = ""
    """Why it can be called by neither convention."""

    @classmethod
    def of(cls, parameters: Iterable[inspect.Parameter]) -> "Signature":
        """Derive the signature from a function's parameters."""
        every = list(parameters)
        named = [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        required = [p for p in named if p.default is p.empty]
        takes, free = frozenset(p.name for p in named), any(p.kind is p.VAR_KEYWORD for p in every)
        by_name = bool(takes & NAMED) or (free and len(every) == 1)
        by_name |= bool(takes & OF_GAMES) and (free or {p.name for p in required} <= OF_GAMES)
        problem = ""
        if by_name:
            fits = all(p.kind is not p.POSITIONAL_ONLY for p in required)
        else:
            fits = len(required) <= 1 and any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in every)
            fits = fits and all(p.kind is not p.KEYWORD_ONLY for p in required)
        if not fits:
            problem = (
                f"takes ({', '.join(map(str, every))}); write f(prompts, completions, **columns), which gets "
                "lists and returns one number for each completion, or f(texts)"
            )
        needs = tuple(p.name for p in required if p.name not in ("prompts", "completions"))
        return cls(takes, needs if by_name else (), free, by_name, problem)

    @property
    def of_games(self) -> frozenset[str]:
        """Which of `OF_GAMES` it is called with."""
        return self.takes & OF_GAMES if self.by_name else frozenset()

    def arguments(self, cases: Cases) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments for a call on `cases`: copies, which it may change.

        ValueError for a column that is missing, or a function that fits neither convention.
        """
        if self.problem:
            raise ValueError(self.problem)
        if not self.by_name:
            return [list(cases.texts)], {}
        if clash := sorted(self.takes & {*OF_GAMES, "completion_ids"} & set(cases.columns)):
            raise ValueError(
                f"it names {clash[0]!r}, which reward functions get of a response, and the data have a "
                "column of that name; rename the column"
            )
        named = cases.named
        if self.of_games:
            named |= {name: values for name, values in cases.of_games.items() if name in self.of_games}
        if missing := [name for name in self.needs if name not in named]:
            known = ", ".join(map(repr, cases.columns)) or "none"
            raise ValueError(
                f"it needs a column {missing[0]!r}; the columns beside the prompt are {known}; rename the "
                "parameter, or give it a default"
            )
        free = set(named) - {"completion_ids"} if self.free else set()
        wanted = {name: values for name, values in named.items() if name in free | self.takes}
        return [], {name: [deepcopy(value) for value in values] for name, values in wanted.items()}


def reads_games(judge: Judge) -> bool:
    """Whether `judge` scores a response by its seat or by the whole game."""
    if isinstance(judge, CaseJudge):
        return judge.reads_games
    return bool(Signature.of(inspect.signature(judge).parameters.values()).of_games)


def finished(returned: Any) -> Any:
    """What a judge returned; of an async function what it returns when it is awaited."""
    if not inspect.isawaitable(returned):
        return returned

    async def result() -> Any:
        return await returned

    running = asyncio.run_coroutine_threadsafe(result(), _loop(os.getpid()))
    try:
        return running.result()
    finally:
        running.cancel()


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 (a fork has no thread of its parent)
    """The event loop of all calls, to which semaphores and connections are bound that functions keep.

    In a thread of its own: that of a notebook runs an event loop already.
    """
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    return loop


def ask(judge: Judge, cases: Cases) -> Sequence[float]:
    """Call `judge` on `cases` by its convention and return its scores."""
    if isinstance(judge, CaseJudge):
        return judge.judge(cases)
    positional, named = Signature.of(inspect.signature(judge).parameters.values()).arguments(cases)
    scores: Sequence[float] = finished(judge(*positional, **named))
    return scores
