"""Task protocol: a source of queries, the prompt template of each seat, and a scorer of responses.

Shapes: B responses, Q query tokens, T response tokens.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from cory_env.contents import ADDRESS
from cory_env.data.splits import take_validation
from cory_env.grading.reward_functions import Cases
from cory_env.templates import Template
from cory_env.tokenizer import Tokenizer, encode_inside
from cory_env.types import Query, Response, without_end


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

    def template(self, seat: str) -> Template:
        """Return the prompt template of `seat`, text or a chat, if it sees every earlier response.

        It is `{query}` for the pioneer. A seat whose template lacks `{query}` is never shown the query.
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


def game_cases(
    cases: Callable[[Sequence[Query], Sequence[Response]], Cases],
    queries: Sequence[Query],
    responses: Mapping[str, Sequence[Response]],
) -> Cases:
    """Return a task's `cases` of whole games: the responses seat by seat, each with its game's texts."""
    flat = [response for of_seat in responses.values() for response in of_seat]
    texts = [[response.text for response in game] for game in zip(*responses.values(), strict=True)]
    return replace(
        cases(list(queries) * len(responses), flat),
        seats=[seat for seat in responses for _ in queries],
        games=[dict(zip(responses, of_game, strict=True)) for of_game in texts] * len(responses),
    )


class ScoresGames(Task, Protocol):
    """A task whose score of a response depends on the whole game; `score` is what one is worth standalone.

    A task may also have an attribute `team_only`: the reason why a response alone is worth nothing. Then
    games of one seat are refused, and evaluations are of the team only.
    """

    def score_games(
        self, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
    ) -> Sequence[Sequence[float]] | np.ndarray:
        """Score games of two or more seats: a row for each query, in it one finite number for each seat.

        `responses` are by seat in the order of play. A property that is None leaves scoring to `score`.
        """
        ...


@runtime_checkable
class MeasuresGames(Task, Protocol):
    """A task that reports more about games than scores, such as a verdict's accuracy."""

    def measure_games(
        self, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
    ) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Return quantities by seat: one finite number for each game; called for two or more seats."""
        ...


def team_only(task: Task) -> str:
    """Return why a response of `task` alone is worth nothing; empty if it is worth its score."""
    return str(getattr(task, "team_only", ""))


def check_seats(task: Task, seats: int) -> None:
    """Raise a ValueError for a game of one seat of a task that scores teams only."""
    if seats == 1 and (reason := team_only(task)):
        raise ValueError(
            f"{type(task).__module__} scores no response alone: {reason}; play games of 2 or more seats"
        )


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
    """Return whether later seats read texts of the task behind responses; ValueError if it bounds none."""
    if callable(getattr(task, "annotations", None)) and not hasattr(task, "max_annotation"):
        raise ValueError(
            f"{type(task).__module__} has annotations and no max_annotation; add it, the most tokens of one"
        )
    return isinstance(task, Annotates) and task.max_annotation > 0


def annotation_ids(
    task: Annotates, queries: Sequence[Query], responses: Sequence[Response]
) -> list[tuple[int, ...]]:
    """Return the ids of the task's annotations; ValueError for one longer than `max_annotation`."""
    texts = task.annotations(queries, responses)
    inside = [encode_inside(task.tokenizer, text) if text else () for text in texts]
    rows = [tuple(without_end(ids, task.tokenizer.eos)) for ids in inside]
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
    """Return the number of queries by split and, under `left_out`, lines about what was left out and why."""
    lines = list(getattr(task, "left_out", ()))
    if reason := team_only(task):
        lines.append(f"responses are evaluated in games of the team only, none standalone: {reason}")
    return {
        "train": len(task.queries("train")),
        "validation": len(validation_queries(task)),
        "test": len(task.queries("test")),
        "left_out": lines,
    }


def queries_digest(task: Task, split: str) -> str:
    """A hash of the texts of a split's queries and of their rows, which hold the gold answers."""
    rows = repr([(query.text, dict(query.row)) for query in task.queries(split)])
    return hashlib.sha256(ADDRESS.sub("", rows).encode(errors="backslashreplace")).hexdigest()[:8]


def checked_scores(
    task: Task, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
) -> np.ndarray:
    """Return the score of each response, [B, N] float64, N seats in the order of `responses`.

    ValueError unless the task gives one finite number for each. With two or more seats a task that has
    `score_games` is asked for whole games.
    """
    check_seats(task, N := len(responses))
    name, B = type(task).__module__, len(queries)
    of_games = getattr(task, "score_games", None) if N > 1 else None
    flat = [response for of_seat in responses.values() for response in of_seat]
    wanted: tuple[int, ...] = (N * B,)
    what = f"{name} scored {N * B} responses"
    advice = "return one number each"
    try:
        if of_games is None:
            returned: Any = task.score(list(queries) * N, flat)
        else:
            wanted, what = (B, N), f"{name} scored {B} games of {N} seats"
            advice = "return a row for each game, with one number for each seat"
            returned = of_games(queries, responses)
    except ArithmeticError as error:  # a ZeroDivisionError of a scorer must not be taken for divergence
        raise RuntimeError(f"{name}: score raised {error!r}") from error
    try:
        scores = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} with {returned!r:.80}; {advice}") from error
    if scores.shape != wanted:
        raise ValueError(f"{what} with shape {scores.shape}; {advice}")
    score_BN: np.ndarray = scores.reshape(N, B).T.copy() if of_games is None else scores
    if not np.isfinite(score_BN).all():
        b, k = np.argwhere(~np.isfinite(score_BN))[0].tolist()
        raise ValueError(
            f"{name} scored {score_BN[b, k]} for the response {flat[k * B + b].text!r} to "
            f"{queries[b].text!r}; a score must be a finite number"
        )
    return score_BN


def check_query(query: Query, *, max_query: int, vocab_size: int) -> None:
    """Raise a ValueError if a query is none, empty, too long, or has ids outside the vocabulary."""
    if not isinstance(query, Query):
        raise ValueError(f"the query {query!r} is no cory_env.Query; make one of its text and token ids")
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
        """Keep the queries of one to `longest` tokens; a tenth of train is validation if there is none.

        ValueError that names the data, `where`, if there is none in train or test.
        """
        most = math.inf if longest is None else longest
        fitting = {s: [q for q in of_split if 1 <= len(q.ids) <= most] for s, of_split in queries.items()}
        for split in ("train", "test"):
            if not fitting[split]:
                shortest = min((len(query.ids) for query in queries[split] if query.ids), default=0)
                raise ValueError(
                    f"{where}: every one of {len(queries[split])} {split} queries is longer than max_query, "
                    f"{longest} tokens; raise it to at least {shortest}"
                    if shortest
                    else f"{where}: the {split} queries have no tokens; give others"
                )
        self.left_out = [
            f"{count} {split} queries of {what} are left out"
            for split, of_split in queries.items()
            for what, count in (
                ("no tokens", sum(not query.ids for query in of_split)),
                (f"more than {longest} tokens", sum(len(query.ids) > most for query in of_split)),
            )
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
