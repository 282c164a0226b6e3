"""Task protocol: a source of queries, the prompt template of each seat, and a scorer of responses.

Shapes: B responses, Q query tokens, T response tokens.
"""

from collections.abc import Mapping, Sequence
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


def correct_from(task: Task) -> float | None:
    """Return the score from which a response of `task` is correct; None if it does not tell."""
    threshold: float | None = getattr(task, "correct_from", None)
    return threshold


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
    texts = [query.text for query in queries]
    others = ([query.text for query in task.queries(split)] for split in ("train", "test"))
    return () if any(texts == other for other in others) else queries


def counted(task: Task) -> dict[str, Any]:
    """Return the number of queries by split and, under `left_out`, lines about data that were left out."""
    lines = list(getattr(task, "left_out", ()))
    return {
        "train": len(task.queries("train")),
        "validation": len(validation_queries(task)),
        "test": len(task.queries("test")),
        "left_out": lines,
    }


def checked_scores(task: Task, queries: Sequence[Query], responses: Sequence[Response]) -> np.ndarray:
    """Return `task.score` as float64; raise a ValueError unless it is one finite number per response."""
    name = type(task).__module__
    try:
        score_B = np.asarray(task.score(queries, responses), dtype=np.float64)
    except ArithmeticError as error:  # a ZeroDivisionError of a scorer must not be taken for divergence
        raise RuntimeError(f"{name}: score raised {error!r}") from error
    if score_B.shape != (len(queries),):
        raise ValueError(
            f"{name} scored {len(queries)} responses with shape {score_B.shape}; return one number each"
        )
    bad = np.flatnonzero(~np.isfinite(score_B))
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"{name} scored {score_B[i]} for the response {responses[i].text!r} to {queries[i].text!r}; "
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


class Pool:
    """Base class of tasks whose queries are known when the task is made."""

    max_query: int
    left_out: Sequence[str] = ()
    """Lines about queries that are left out."""

    def keep(
        self, queries: Mapping[str, Sequence[Query]], *, longest: int | None = None, where: object = ""
    ) -> None:
        """Keep the queries of up to `longest` tokens; a tenth of train is validation if there is none.

        ValueError that names the data, `where`, if no query of train or test is short enough.
        """
        fitting = {
            s: [q for q in of_split if longest is None or len(q.ids) <= longest]
            for s, of_split in queries.items()
        }
        dropped = {split: len(queries[split]) - len(kept) for split, kept in fitting.items()}
        for split in ("train", "test"):
            if not fitting[split]:
                shortest = min((len(query.ids) for query in queries[split]), default=0)
                raise ValueError(
                    f"{where}: every one of {len(queries[split])} {split} queries is longer than max_query, "
                    f"{longest} tokens; raise it to at least {shortest}"
                )
        if longest is not None:
            self.left_out = [
                f"{count} {split} queries of more than {longest} tokens are left out"
                for split, count in dropped.items()
                if count
            ]
        if not fitting.get("validation"):
            fitting["train"], fitting["validation"] = take_validation(fitting["train"], lambda q: q.text)
        self._queries = {split: fitting[split] for split in ("train", "validation", "test")}
        self.max_query = max(len(query.ids) for of_split in self._queries.values() for query in of_split)

    def queries(self, split: str) -> Sequence[Query]:
        """Every query of a split, in the order of the data; ValueError for an unknown split."""
        if split not in self._queries:
            raise ValueError(f"no split called {split!r}; there are {', '.join(self._queries)}")
        return self._queries[split]

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train queries, drawn uniformly."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]


def earlier(seat: str) -> range:
    """The indices of the seats that respond before `seat`."""
    return range(int(seat.rsplit("_", 1)[1]))
