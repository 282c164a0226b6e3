"""Weighted sum of judges, with their metrics and failures."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from cory.distributed import ranks
from cory.judges.user_function import Failure, UserFunction
from cory_env.grading.reward_functions import CaseJudge, Cases, Judge, ask


class Term(NamedTuple):
    """One judge of the sum, with its name and weight."""

    name: str
    weight: float
    judge: Judge | CaseJudge


class WeightedSum(CaseJudge):
    """score = sum of weight * score over the terms."""

    def __init__(self, terms: Sequence[Term], *, reads: Literal["whole", "completion"] = "whole") -> None:
        """`reads`: whether judges of texts receive query and response, or the response only."""
        self.terms, self.reads = tuple(terms), reads
        self._sums = dict.fromkeys((term.name for term in terms), 0.0)
        self._cases = 0

    def judge(self, cases: Cases) -> list[float]:
        """Return the sum for each case; terms are called one after another, each with the whole batch."""
        if self.reads == "completion":
            cases = replace(cases, texts=cases.answers)
        columns = {term.name: _scores(term, cases) for term in self.terms}
        for name, scores in columns.items():
            self._sums[name] += math.fsum(scores)
        self._cases += len(cases)
        weights = [term.weight for term in self.terms]
        rows = zip(*columns.values(), strict=True)
        return [math.fsum(w * s for w, s in zip(weights, row, strict=True)) for row in rows]

    def metrics(self) -> dict[str, float]:
        """Return metrics since the last call on all ranks, keyed `judge/<name>/<quantity>`.

        The mean unweighted score of each term, if there are several; failures and retries of user functions.
        """
        functions = {term.name: term.judge for term in self.terms if isinstance(term.judge, UserFunction)}
        counts = {name: judge.metrics() for name, judge in functions.items()}
        everywhere = ranks.of_all("the judges", (counts, self._sums, self._cases))
        cases = sum(cases for _, _, cases in everywhere)
        metrics: dict[str, float] = {}
        for name in (term.name for term in self.terms):
            of_term = {
                quantity: sum(counted[name][quantity] for counted, _, _ in everywhere)
                for quantity in counts.get(name, {})
            }
            if len(self.terms) > 1 and cases:
                of_term["score"] = math.fsum(sums[name] for _, sums, _ in everywhere) / cases
            metrics |= {f"judge/{name}/{quantity}": value for quantity, value in of_term.items()}
        self._sums, self._cases = dict.fromkeys(self._sums, 0.0), 0
        return metrics

    def close(self) -> None:
        """End the worker processes of functions; the next call starts new ones."""
        for term in self.terms:
            if isinstance(term.judge, UserFunction):
                term.judge.pool.close()

    def failures(self) -> list[dict[str, Any]]:
        """Return the first failures since the last call, as rows of samples.jsonl."""
        rows: list[dict[str, Any]] = []
        for term in self.terms:
            if isinstance(term.judge, UserFunction):
                rows += [_row(failure) for failure in term.judge.failures]
                term.judge.failures.clear()
        return rows


def metrics(task: object, prefix: str = "") -> dict[str, float]:
    """Return metrics of the judge of `task`, quantities prefixed; empty for tasks without a `WeightedSum`."""
    judge = _judge_of(task)
    parts = {key.rpartition("/"): value for key, value in (judge.metrics() if judge else {}).items()}
    return {f"{place}/{prefix}{quantity}": value for (place, _, quantity), value in parts.items()}


def failures(task: object) -> list[dict[str, Any]]:
    """Return failures of the judge of `task`; empty for tasks without a `WeightedSum`."""
    judge = _judge_of(task)
    return judge.failures() if judge else []


@contextmanager
def closing(task: object) -> Iterator[None]:
    """End the worker processes of the judge of `task` at the end of the block."""
    try:
        yield
    finally:
        if (judge := _judge_of(task)) is not None:
            judge.close()


def _scores(term: Term, cases: Cases) -> list[float]:
    """Return the scores of one judge; errors name it."""
    try:
        returned = list(ask(term.judge, cases))
    except Exception as error:
        error.add_note(f"in the judge {term.name!r}")
        raise
    wrong = [one for one in returned if isinstance(one, str) or not hasattr(one, "__float__")]
    if wrong or len(returned) != len(cases):
        found = f"{wrong[0]!r:.80}" if wrong else f"{len(returned)} scores for {len(cases)} responses"
        raise ValueError(f"judge {term.name!r} returned {found}; return one number for each response")
    return [float(score) for score in returned]


def _judge_of(task: object) -> WeightedSum | None:
    judge = getattr(task, "judge", None)
    return judge if isinstance(judge, WeightedSum) else None


def _row(failure: Failure) -> dict[str, Any]:
    prompt = failure.prompt
    query = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    return {"query": query, "response": failure.response, "judge": failure.judge, "failure": failure.reason}
