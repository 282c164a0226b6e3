"""What a task is: where queries come from, how seats are addressed, and what a response is worth.

Shapes: B responses, Q query tokens, T response tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from cory_env.game import Query, Response
from cory_env.tokenizer import Tokenizer


class Task(Protocol):
    """A source of queries and a judge of responses."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The one whose ids queries and responses are made of."""
        ...

    @property
    def max_query(self) -> int:
        """The most tokens a query has."""
        ...

    def queries(self, split: str) -> Sequence[Query]:
        """Every query of `train` or `test`; the two share no text."""
        ...

    def query(self, rng: np.random.Generator) -> Query:
        """Draw one query to train on."""
        ...

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[float]:
        """What each response is worth for the query beside it, a batch at once; finite, higher is better."""
        ...

    def template(self, seat: str) -> str:
        """The words of `seat`'s prompt when it sees every earlier response; `{query}` for the pioneer.

        A seat whose words lack `{query}` is never shown the query.
        """
        ...


@runtime_checkable
class ScoresArrays(Task, Protocol):
    """A task that can also score ids without making objects or texts of them: `VectorGame` then does so."""

    def score_arrays(
        self,
        query_BQ: np.ndarray,
        query_length_B: np.ndarray,
        response_BT: np.ndarray,
        length_B: np.ndarray,
        *,
        seat: str,
    ) -> np.ndarray:
        """[B], what `score` says of the same responses of `seat`. Past the lengths stands pad."""
        ...


def takes_arrays(task: Task) -> TypeGuard[ScoresArrays]:
    """Whether `score_arrays` speaks for `score`: not where a subclass has replaced `score` alone."""
    kinds = type(task).__mro__
    owner = {name: i for i, kind in reversed([*enumerate(kinds)]) for name in vars(kind)}
    return isinstance(task, ScoresArrays) and owner["score_arrays"] <= owner["score"]


@runtime_checkable
class LeavesOut(Task, Protocol):
    """A task that does not play all of its data, and says so: runs tell their readers."""

    @property
    def left_out(self) -> Sequence[str]:
        """What is left out and why, a line each."""
        ...


def counted(task: Task) -> dict[str, Any]:
    """How many queries the task has by split, and `left_out`: what runs and evaluations say of their data."""
    lines = list(task.left_out) if isinstance(task, LeavesOut) else []
    return {split: len(task.queries(split)) for split in ("train", "test")} | {"left_out": lines}


def too_long(counts: Mapping[str, int], max_query: int) -> list[str]:
    """The lines of `left_out` for queries beyond a length, from their number by split."""
    return [
        f"{count} {split} queries of more than {max_query} tokens are left out"
        for split, count in counts.items()
        if count
    ]


def checked_scores(task: Task, queries: Sequence[Query], responses: Sequence[Response]) -> np.ndarray:
    """`task.score` as float64, refused unless it is one finite number per response."""
    try:
        scores = task.score(queries, responses)
    except ArithmeticError as error:  # a user's 1 / 0 must not look like a run gone wrong
        raise RuntimeError(f"{type(task).__module__}: score raised {error!r}") from error
    return check_scores(task, scores, queries, lambda: responses)


def check_scores(
    task: Task, scores: Any, queries: Sequence[Query], responses: Callable[[], Sequence[Response]]
) -> np.ndarray:
    """`scores` as float64, refused (in the words of `responses`) unless one finite number per query."""
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
    """Refuse a query that is empty, too long, or written in ids the vocabulary lacks."""
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


def split_of(queries: dict[str, list[Query]], split: str) -> list[Query]:
    """The queries of `split`; a wrong name is answered with the right ones."""
    if split not in queries:
        raise ValueError(f"no split called {split!r}; there are {', '.join(queries)}")
    return queries[split]
