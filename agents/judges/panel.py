"""The judge of a run: a weighted sum of judges, with what they have to say about themselves."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from agents.judges.guarded import Failure, Guarded
from cory_env.judging import CaseJudge, Cases, Judge, ask


class Term(NamedTuple):
    """A judge, what it is called, and what a unit of its score is worth."""

    name: str
    weight: float
    judge: Judge


class Panel(CaseJudge):
    """score = sum of weight * the score of each term."""

    def __init__(self, terms: Sequence[Term], *, reads: Literal["whole", "completion"] = "whole") -> None:
        """`reads`: what judges of texts are shown of a case."""
        self.terms, self.reads = tuple(terms), reads
        self._sums = dict.fromkeys((term.name for term in terms), 0.0)
        self._cases = 0

    def judge(self, cases: Cases) -> list[float]:
        """The sum for each case; the terms are asked one after another, each for the whole batch."""
        if self.reads == "completion":
            cases = replace(cases, texts=cases.answers)
        columns = {term.name: ask(term.judge, cases) for term in self.terms}
        for name, scores in columns.items():
            self._sums[name] += math.fsum(scores)
        self._cases += len(cases)
        weights = [term.weight for term in self.terms]
        rows = zip(*columns.values(), strict=True)
        return [math.fsum(w * s for w, s in zip(weights, row, strict=True)) for row in rows]

    def numbers(self) -> dict[str, float]:
        """Since the last call, keyed `judge/<name>/<quantity>`.

        The mean score of each of several terms, before its weight; the failures of functions.
        """
        told: dict[str, float] = {}
        for term in self.terms:
            said = term.judge.numbers() if isinstance(term.judge, Guarded) else {}
            if len(self.terms) > 1 and self._cases:
                said["score"] = self._sums[term.name] / self._cases
            told |= {f"judge/{term.name}/{quantity}": number for quantity, number in said.items()}
        self._sums, self._cases = dict.fromkeys(self._sums, 0.0), 0
        return told

    def close(self) -> None:
        """End the processes of functions; asked again, they begin anew."""
        for term in self.terms:
            if isinstance(term.judge, Guarded):
                term.judge.pool.close()

    def failures(self) -> list[dict[str, Any]]:
        """The first failures since the last call, as rows of samples.jsonl."""
        rows: list[dict[str, Any]] = []
        for term in self.terms:
            if isinstance(term.judge, Guarded):
                rows += [_row(failure) for failure in term.judge.failures]
                term.judge.failures.clear()
        return rows


def numbers(task: object, prefix: str = "") -> dict[str, float]:
    """Those of the judge of `task`, each quantity behind `prefix`; none where it has none of ours."""
    told = {} if (panel := _panel(task)) is None else panel.numbers()
    parts = {key.rpartition("/"): number for key, number in told.items()}
    return {f"{place}/{prefix}{quantity}": number for (place, _, quantity), number in parts.items()}


def failures(task: object) -> list[dict[str, Any]]:
    """The same of its failures."""
    return [] if (panel := _panel(task)) is None else panel.failures()


@contextmanager
def closing(task: object) -> Iterator[None]:
    """At the end the processes of the judge of `task` end too."""
    try:
        yield
    finally:
        if (panel := _panel(task)) is not None:
            panel.close()


def _panel(task: object) -> Panel | None:
    judge = getattr(task, "judge", None)
    return judge if isinstance(judge, Panel) else None


def _row(failure: Failure) -> dict[str, Any]:
    prompt = failure.prompt
    query = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    return {"query": query, "response": failure.answer, "judge": failure.judge, "failure": failure.why}
