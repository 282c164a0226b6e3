"""Calling conventions of judges: functions of texts, or of prompts and completions as in TRL.

A function with a parameter called `completions` is called as `f(prompts, completions, **columns)`, any other
as `f(texts)`; both return a list of scores.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cory_env.tokenizer import Message

Prompt = str | Sequence[Message]
"""A text, or the messages of a chat."""

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

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, part: slice) -> "Cases":
        return Cases(
            prompts=self.prompts[part],
            answers=self.answers[part],
            texts=self.texts[part],
            columns={name: values[part] for name, values in self.columns.items()},
        )

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


class Signature(NamedTuple):
    """The parameters of a judge function."""

    takes: frozenset[str]
    """Names of its parameters."""

    needs: tuple[str, ...]
    """Columns without which it cannot be called."""

    free: bool
    """True if it takes any column (`**columns`)."""

    @classmethod
    def of(cls, parameters: Iterable[inspect.Parameter]) -> "Signature":
        """Derive the signature from a function's parameters."""
        starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        every = list(parameters)
        named = [p for p in every if p.kind not in starred]
        required = [p.name for p in named if p.default is inspect.Parameter.empty]
        takes = frozenset(p.name for p in named)
        needs = [name for name in required if name not in ("prompts", "completions")]
        return cls(
            takes=takes,
            needs=tuple(needs) if "completions" in takes else (),
            free=any(p.kind is inspect.Parameter.VAR_KEYWORD for p in every),
        )

    def arguments(self, cases: Cases) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments for a call on `cases`; a missing column is a ValueError."""
        if "completions" not in self.takes:
            return [list(cases.texts)], {}
        if missing := [name for name in self.needs if name not in cases.columns]:
            known = ", ".join(map(repr, cases.columns)) or "none"
            raise ValueError(f"it needs a column {missing[0]!r}; the columns beside the prompt are {known}")
        named: dict[str, Any] = {"prompts": list(cases.prompts), "completions": cases.completions}
        named |= {name: list(values) for name, values in cases.columns.items()}
        return [], {name: value for name, value in named.items() if self.free or name in self.takes}


def ask(judge: Judge, cases: Cases) -> Sequence[float]:
    """Call `judge` on `cases` by its convention and return its scores."""
    if isinstance(judge, CaseJudge):
        return judge.judge(cases)
    positional, named = Signature.of(inspect.signature(judge).parameters.values()).arguments(cases)
    return judge(*positional, **named)
