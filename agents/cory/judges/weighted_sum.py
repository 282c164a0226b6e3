"""Weighted sum of judges, with their metrics and failures."""

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cory.distributed import ranks
from cory.judges.user_function import UserFunction
from cory.judges.worker import MAX_SCORE, scores
from cory_env.grading.reward_functions import CaseJudge, Cases, Judge, Signature, ask, reads_games
from cory_env.tasks.base import JudgesCases, game_cases
from cory_env.types import Response

BUGS = (LookupError, TypeError, AttributeError, NameError, AssertionError, ZeroDivisionError)
"""What a function raises that is wrong, as against memory that ran out or a signal."""


class Term(NamedTuple):
    """One judge of the sum, with its name and weight."""

    name: str
    weight: float
    judge: Judge | CaseJudge


class WeightedSum(CaseJudge):
    """score = sum of weight * score over the terms; those of one name are numbered, `mine`, `mine#2`."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(_numbered(terms))
        functions = ((term.name, term.judge) for term in self.terms)
        self._functions = {name: judge for name, judge in functions if isinstance(judge, UserFunction)}
        self._sums = dict.fromkeys((term.name for term in self.terms), 0.0)
        self._cases = 0

    def judge(self, cases: Cases) -> list[float]:
        """Return the sum for each case; terms are called one after another, each with the whole batch."""
        columns = {term.name: _scores(term, cases) for term in self.terms}
        for name, column in columns.items():
            self._sums[name] += math.fsum(column)
        self._cases += len(cases)
        weights = [term.weight for term in self.terms]
        rows = zip(*columns.values(), strict=True)
        return [math.fsum(w * s for w, s in zip(weights, row, strict=True)) for row in rows]

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Metrics since the last call on all ranks, keyed `judge/<name>/<prefix><quantity>`.

        The mean unweighted score of each term, if there are several; failures and retries of user functions.
        """
        counts = {name: function.metrics() for name, function in self._functions.items()}
        everywhere = ranks.gather_object("the judges", (counts, self._sums, self._cases))
        cases = sum(cases for _, _, cases in everywhere)
        metrics: dict[str, float] = {}
        for name in self._sums:
            of_term = {
                quantity: sum(counted[name][quantity] for counted, _, _ in everywhere)
                for quantity in counts.get(name, {})
            }
            if len(self.terms) > 1 and cases:
                of_term["score"] = math.fsum(sums[name] for _, sums, _ in everywhere) / cases
            metrics |= {f"judge/{name}/{prefix}{quantity}": value for quantity, value in of_term.items()}
        self._sums, self._cases = dict.fromkeys(self._sums, 0.0), 0
        return metrics

    @property
    def correct_from(self) -> float | None:
        """The score from which a response is correct; None for sums, and judges that do not tell."""
        first, *others = self.terms
        return getattr(first.judge, "correct_from", None) if first.weight == 1 and not others else None

    @property
    def team_only(self) -> str:
        """Why a term scores no response alone; empty if all do."""
        return next(filter(None, (str(getattr(term.judge, "team_only", "")) for term in self.terms)), "")

    @property
    def reads_games(self) -> bool:
        """Whether any term does."""
        return any(reads_games(term.judge) for term in self.terms)

    def check(self, cases: Cases) -> None:
        """Call every judge once, before a run begins; ValueError if what it returns cannot be scores."""
        for term in self.terms:
            if isinstance(term.judge, UserFunction):
                term.judge.check(cases)
            else:
                if not isinstance(term.judge, CaseJudge):
                    _check_parameters(term, cases)
                _scores(term, cases)

    def log_to(self, path: Path) -> None:
        """Append what functions print in their process to the file at `path`."""
        for function in self._functions.values():
            function.supervisor.log = str(path.absolute())

    def close(self) -> None:
        """End the process of functions; the next call starts a new one."""
        for function in self._functions.values():
            function.supervisor.close()

    def failures(self) -> list[dict[str, Any]]:
        """The first failures since the last call, as rows of samples.jsonl."""
        rows: list[dict[str, Any]] = []
        for function in self._functions.values():
            rows += function.failures
            function.failures.clear()
        return rows


CHECKED = 4
"""Responses that a judge scores before a run begins."""


def of_task(task: object) -> WeightedSum:
    """The judge of a task, a sum without terms for a task that has none of this kind."""
    judge = getattr(task, "judge", None)
    return judge if isinstance(judge, WeightedSum) else WeightedSum([])


def check(task: object, seats: Sequence[str] = ("pioneer_0",)) -> None:
    """Let the judge of `task` score queries in place of responses; ValueError if that gives no scores."""
    judge = of_task(task)
    if judge.reads_games and len(seats) > 1 and getattr(task, "score_games", None) is None:
        raise ValueError(
            f"the judge reads whole games, and {type(task).__module__} scores response by response; give the "
            "task score_games, or take a judge without seat and responses"
        )
    if isinstance(task, JudgesCases):
        queries = task.queries("train")[:CHECKED]
        responses = [Response(query.ids, query.text) for query in queries]
        played = dict.fromkeys(seats if judge.reads_games else seats[:1], responses)
        judge.check(game_cases(task.cases, queries, played))


def _numbered(terms: Sequence[Term]) -> Iterator[Term]:
    """Yield the terms; from the second of one name on the name has a number."""
    names = [term.name for term in terms]
    for i, term in enumerate(terms):
        number = names[: i + 1].count(term.name)
        yield term if number == 1 else term._replace(name=f"{term.name}#{number}")


@contextmanager
def closing(task: object) -> Iterator[None]:
    """End the worker processes of the judge of `task` at the end of the block."""
    try:
        yield
    finally:
        of_task(task).close()


def _scores(term: Term, cases: Cases) -> list[float]:
    """Return the scores of one judge; errors name it."""
    try:
        returned = ask(term.judge, cases)
    except BUGS as error:
        raise ValueError(f"judge {term.name!r} raised {type(error).__name__}: {error}") from error
    except Exception as error:
        error.add_note(f"in the judge {term.name!r}")
        raise
    try:
        scored = scores(returned, len(cases))
    except ValueError as error:
        raise ValueError(f"judge {term.name!r} {error}") from error
    numbers = [score for score in scored if not isinstance(score, str)]
    if len(numbers) < len(scored):
        problem = next(score for score in scored if isinstance(score, str))
        raise ValueError(
            f"judge {term.name!r} {problem}; return one number for each response, from {-MAX_SCORE:g} to "
            f"{MAX_SCORE:g}"
        )
    return numbers


def _check_parameters(term: Term, cases: Cases) -> None:
    """Raise ValueError with the judge's name if it cannot be called on these cases."""
    try:
        Signature.of(inspect.signature(term.judge).parameters.values()).arguments(cases)
    except ValueError as error:
        raise ValueError(f"judge {term.name!r}: {error}") from error
