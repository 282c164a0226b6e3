"""Task protocol: a source of queries, the prompt template of each seat, and a scorer of responses.

Shapes: B responses, Q query tokens, T response tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from cory_env.data.splits import take_validation
from cory_env.grading.reward_functions import Cases
from cory_env.tokenizer import Tokenizer, encode_inside
from cory_env.types import Query, Response


class Task(Protocol):
    """A source of queries and a scorer of responses."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of queries and responses."""
        ...

    @property
    def max_query(self) -> int:
        """The most tokens a query has."""
        ...

    def queries(self, split: str) -> Sequence[Query]:
        """Return every query of the split `train`, `validation` or `test`; no two share a source text.

        Choices made during training (the best checkpoint, options) use `validation`, reports use `test`. A
        task without validation queries raises a KeyError or ValueError for it, or returns none.
        """
        ...

    def query(self, rng: np.random.Generator) -> Query:
        """Draw one query to train on."""
        ...

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[float]:
        """Score each response to the query at the same index: one finite number each, higher is better."""
        ...

    def template(self, seat: str) -> str:
        """Return the prompt template of `seat` if it sees every earlier response; `{query}` for the pioneer.

        A seat whose template lacks `{query}` is never shown the query.
        """
        ...


@runtime_checkable
class ScoresArrays(Task, Protocol):
    """A task that can also score arrays of ids, which `VectorGame` prefers to objects and texts."""

    def score_arrays(
        self,
        query_BQ: np.ndarray,
        query_length_B: np.ndarray,
        response_BT: np.ndarray,
        length_B: np.ndarray,
        *,
        seat: str,
    ) -> np.ndarray:
        """Return the same scores as `score` for responses of `seat`, [B]; past the lengths stands pad."""
        ...


def takes_arrays(task: Task) -> TypeGuard[ScoresArrays]:
    """Return whether to use `score_arrays`: it exists, and no subclass has replaced only `score`."""
    classes = type(task).__mro__
    owner = {name: i for i, cls in reversed([*enumerate(classes)]) for name in vars(cls)}
    return isinstance(task, ScoresArrays) and owner["score_arrays"] <= owner["score"]


@runtime_checkable
class LeavesOut(Task, Protocol):
    """A task that leaves out some of its data and reports it."""

    @property
    def left_out(self) -> Sequence[str]:
        """What is left out and why, one line each."""
        ...


@runtime_checkable
class Marks(Task, Protocol):
    """A task whose scores may tell right from wrong; accuracy and pass@k are reported if they do."""

    @property
    def correct_from(self) -> float | None:
        """The score from which a response is correct; None if scores do not tell right from wrong."""
        ...


def correct_from(task: Task) -> float | None:
    """Return the score from which a response of `task` is correct; None if it does not tell."""
    return task.correct_from if isinstance(task, Marks) else None


@runtime_checkable
class JudgesCases(Task, Protocol):
    """A task whose scores are those of a judge of cases."""

    def cases(self, queries: Sequence[Query], responses: Sequence[Response]) -> Cases:
        """Return what the judge is given for these responses."""
        ...


@runtime_checkable
class Annotates(Task, Protocol):
    """A task that adds a text behind each response that later seats read: a verdict, a program's output."""

    @property
    def max_annotation(self) -> int:
        """The most tokens of such a text; with 0 there are none."""
        ...

    def annotations(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[str]:
        """Return the text that later seats read behind each response; the responses are of one seat."""
        ...


def annotates(task: Task) -> TypeGuard[Annotates]:
    """Return whether later seats read texts of the task behind responses."""
    return isinstance(task, Annotates) and task.max_annotation > 0


def annotation_ids(
    task: Annotates, queries: Sequence[Query], responses: Sequence[Response]
) -> list[tuple[int, ...]]:
    """Return the ids of the task's annotations; ValueError for one longer than `max_annotation`."""
    texts = task.annotations(queries, responses)
    rows = [tuple(encode_inside(task.tokenizer, text)) if text else () for text in texts]
    if len(rows) != len(responses) or max(map(len, rows)) > task.max_annotation:
        raise ValueError(
            f"the task annotated {len(responses)} responses with {len(rows)} texts of up to "
            f"{max(map(len, rows), default=0)} tokens; give one each, of at most max_annotation, "
            f"{task.max_annotation}"
        )
    return rows


def validation_queries(task: Task) -> Sequence[Query]:
    """Return the validation split, or an empty tuple for a task of another package that does not have one.

    Such a task raises a KeyError or ValueError, or returns its train or test queries for any other name.
    """
    try:
        queries = task.queries("validation")
    except (KeyError, ValueError):
        return ()
    other_splits = (task.queries(split) for split in ("train", "test"))
    return () if any(_same_texts(queries, others) for others in other_splits) else queries


def _same_texts(queries: Sequence[Query], others: Sequence[Query]) -> bool:
    same_length = len(queries) == len(others)
    return same_length and all(a.text == b.text for a, b in zip(queries, others, strict=True))


def counted(task: Task) -> dict[str, Any]:
    """Return the number of queries by split and, under `left_out`, lines about data that were left out."""
    lines = list(task.left_out) if isinstance(task, LeavesOut) else []
    return {
        "train": len(task.queries("train")),
        "validation": len(validation_queries(task)),
        "test": len(task.queries("test")),
        "left_out": lines,
    }


def too_long(counts: Mapping[str, int], max_query: int) -> list[str]:
    """Return the lines of `left_out` for queries longer than `max_query`, from their number by split."""
    return [
        f"{count} {split} queries of more than {max_query} tokens are left out"
        for split, count in counts.items()
        if count
    ]


def checked_scores(task: Task, queries: Sequence[Query], responses: Sequence[Response]) -> np.ndarray:
    """Return `task.score` as float64; raise a ValueError unless it is one finite number per response."""
    try:
        scores = task.score(queries, responses)
    except ArithmeticError as error:  # a ZeroDivisionError of a scorer must not be taken for divergence
        raise RuntimeError(f"{type(task).__module__}: score raised {error!r}") from error
    return check_scores(task, scores, queries, lambda: responses)


def check_scores(
    task: Task, scores: Any, queries: Sequence[Query], responses: Callable[[], Sequence[Response]]
) -> np.ndarray:
    """Return `scores` as float64; raise a ValueError unless they are one finite number per query.

    `responses` is called for the error message only.
    """
    score_B = np.asarray(scores, dtype=np.float64)
    name = type(task).__module__
    if score_B.shape != (len(queries),):
        raise ValueError(
            f"{name} scored {len(queries)} responses with shape {score_B.shape}; return one number each"
        )
    bad = np.flatnonzero(~np.isfinite(score_B))
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"{name} scored {score_B[i]} for the response {responses()[i].text!r} to {queries[i].text!r}; "
            "a score must be a finite number"
        )
    return score_B


def check_query(query: Query, *, max_query: int, vocab_size: int) -> None:
    """Raise a ValueError if a query is empty, too long, or has ids outside the vocabulary."""
    if not 1 <= len(query.ids) <= max_query:
        raise ValueError(
            f"the query {query.text!r} has {len(query.ids)} tokens; this game takes 1 to {max_query}: "
            "raise max_query or shorten the query"
        )
    if min(query.ids) < 0 or max(query.ids) >= vocab_size:
        raise ValueError(
            f"the query {query.text!r} has ids {min(query.ids)} to {max(query.ids)}; the vocabulary has "
            f"0 to {vocab_size - 1}: was it made with another tokenizer?"
        )


def with_validation(queries: Mapping[str, Sequence[Query]]) -> dict[str, list[Query]]:
    """Return the three splits; `validation` is taken from train if missing or empty."""
    train, validation = list(queries["train"]), list(queries.get("validation", ()))
    if not validation:
        train, validation = take_validation(train, lambda query: query.text)
    return {"train": train, "validation": validation, "test": list(queries["test"])}


def split_of(queries: dict[str, list[Query]], split: str) -> list[Query]:
    """Return the queries of `split`; the error for an unknown split lists the known ones."""
    if split not in queries:
        raise ValueError(f"no split called {split!r}; there are {', '.join(queries)}")
    return queries[split]
