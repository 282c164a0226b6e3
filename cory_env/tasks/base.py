"""What a task is: where queries come from, how seats are addressed, and what a response is worth."""

from collections.abc import Sequence
from typing import Protocol

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
        """The words of `seat`'s prompt when it sees every earlier response; `{query}` for the pioneer."""
        ...


def checked_scores(task: Task, queries: Sequence[Query], responses: Sequence[Response]) -> np.ndarray:
    """`task.score` as float64, refused unless it is one finite number per response."""
    scores = np.asarray(task.score(queries, responses), dtype=np.float64)
    name = type(task).__module__
    if scores.shape != (len(responses),):
        raise ValueError(
            f"{name} scored {len(responses)} responses with shape {scores.shape}; return one number each"
        )
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"{name} scored {scores[i]} for the response {responses[i].text!r} to {queries[i].text!r}; "
            "a score must be a finite number"
        )
    return scores


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
