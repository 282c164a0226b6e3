"""What a judge is asked, and in which convention: a function of texts, or of prompts and completions.

The second is the field's, `f(prompts, completions, **columns) -> list[float]`. A function that has a
parameter called `completions` is of that kind.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cory_env.tokenizer import Message

Prompt = str | Sequence[Message]
"""Text, or the messages of a chat."""

Judge = Callable[..., Sequence[float]]
"""A function in either convention, or a `CaseJudge`: one finite number per case, higher is better."""


@dataclass(frozen=True, kw_only=True)
class Cases:
    """What there is to judge; all sequences are equally long."""

    prompts: Sequence[Prompt]
    """As they stand in the data."""

    answers: Sequence[str]
    """The responses as text."""

    texts: Sequence[str]
    """Each prompt and its answer as one text."""

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
        """The answers as reward functions read them: text to a text, a message of the assistant to a chat."""
        return [
            answer if isinstance(prompt, str) else [{"role": "assistant", "content": answer}]
            for prompt, answer in zip(self.prompts, self.answers, strict=True)
        ]


class CaseJudge(ABC):
    """A judge that reads whole cases; called with texts alone, it is told of nothing else."""

    @abstractmethod
    def judge(self, cases: Cases) -> list[float]:
        """One finite number per case."""

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """The scores of answers whose prompts are empty."""
        return self.judge(Cases(prompts=[""] * len(texts), answers=texts, texts=texts))


class Signature(NamedTuple):
    """What a function wants to be handed."""

    takes: frozenset[str]
    """Names of its parameters."""

    needs: tuple[str, ...]
    """Columns without which it cannot be called."""

    free: bool
    """Whether it takes any column (`**columns`)."""

    @classmethod
    def of(cls, parameters: Iterable[inspect.Parameter]) -> "Signature":
        """Read off a function's parameters."""
        starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        known = list(parameters)
        named = [p for p in known if p.kind not in starred]
        bare = [p.name for p in named if p.default is inspect.Parameter.empty]
        takes = frozenset(p.name for p in named)
        needs = [name for name in bare if name not in ("prompts", "completions")]
        return cls(
            takes=takes,
            needs=tuple(needs) if "completions" in takes else (),
            free=any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known),
        )

    def arguments(self, cases: Cases) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments for a call on `cases`; a column that is lacking is a ValueError."""
        if "completions" not in self.takes:
            return [list(cases.texts)], {}
        if missing := [name for name in self.needs if name not in cases.columns]:
            known = ", ".join(map(repr, cases.columns)) or "none"
            raise ValueError(f"it needs a column {missing[0]!r}; the columns beside the prompt are {known}")
        named: dict[str, Any] = {"prompts": list(cases.prompts), "completions": cases.completions}
        named |= {name: list(values) for name, values in cases.columns.items()}
        return [], {name: value for name, value in named.items() if self.free or name in self.takes}


def ask(judge: Judge, cases: Cases) -> Sequence[float]:
    """The judge's score of each case, in whichever convention it is written."""
    if isinstance(judge, CaseJudge):
        return judge.judge(cases)
    positional, named = Signature.of(inspect.signature(judge).parameters.values()).arguments(cases)
    return judge(*positional, **named)
