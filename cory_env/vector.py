"""Batched game: B games at once, by the rules of `Game`.

Shapes: B games, N seats, P prompt tokens, T response tokens, Q query tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cory_env.arrays import caps_of, length_mask, pack
from cory_env.payoff import Payoff, rule
from cory_env.tasks.base import (
    MeasuresGames,
    Task,
    annotates,
    annotation_ids,
    check_query,
    checked_scores,
)
from cory_env.types import Query, Response, response_range, seat_names, without_end
from cory_env.views import Seen, View, check_window, resolve_views


class VectorGame:
    """B games that advance together, seat by seat.

    After `reset`, call `prompts` and `respond` for each seat in the order of play, then `payoffs`.
    """

    def __init__(
        self,
        task: Task,
        *,
        seats: int = 2,
        views: Seen | None = None,
        payoff: Payoff = "cooperative",
        max_response: int | tuple[int, int] = 16,
        window: int | None = None,
    ) -> None:
        """`max_response` bounds the caps given at reset; games that may outgrow a `window` are refused."""
        self.task = task
        self.seats = seat_names(seats)
        self.views = resolve_views(task, seats=seats, views=views)
        self.set_payoff(payoff)
        self.cap_range = response_range(max_response)
        if window is not None:
            check_window(self.views, max_query=task.max_query, max_response=self.cap_range[1], window=window)
        self._eos_V = np.zeros(task.tokenizer.vocab_size, dtype=bool)
        self._eos_V[list(task.tokenizer.eos)] = True

    def set_payoff(self, payoff: Payoff, *, iteration: int = 0) -> None:
        """Set the payoff from now on; a schedule is evaluated at `iteration`."""
        self.pay = rule(payoff, len(self.seats), iteration=iteration)

    def reset(self, queries: Sequence[Query], caps: np.ndarray | int | None = None) -> None:
        """Begin one game per query; `caps` [B, N] bounds each response in tokens, a number bounds all."""
        tokenizer, (_, high) = self.task.tokenizer, self.cap_range
        if not queries:
            raise ValueError("there are no queries; a batch has at least one game")
        for query in queries:
            check_query(query, max_query=self.task.max_query, vocab_size=tokenizer.vocab_size)
        shape = (len(queries), len(self.seats))
        self.caps_BN = caps_of(high if caps is None else caps, shape, high=high)
        self.queries = list(queries)
        self._shown: list[list[list[int]]] = [[] for _ in queries]
        self._written: list[list[list[int]]] = []
        self._responses: dict[str, list[Response]] = {}
        self._annotations: dict[str, list[tuple[int, ...]]] = {}
        self._scores_BN: np.ndarray | None = None

    @property
    def turn(self) -> str | None:
        """The seat to respond; None once all have responded."""
        k = len(self._written)
        return self.seats[k] if k < len(self.seats) else None

    def prompts(self, seat: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the prompt of `seat` in each game: ids [B, P], right-padded with pad, and lengths [B]."""
        view, k = self._at(seat)
        if k > len(self._written):
            raise ValueError(f"{seat} has nothing to read yet; it is the turn of {self.turn}")
        games = zip(self.queries, self._shown, strict=True)
        return pack([view.prompt(query.ids, shown) for query, shown in games], self.task.tokenizer.pad)

    def respond(self, seat: str, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Play the response of `seat` in each game: ids [B, T], of which the first lengths [B] count.

        EOS may only be the last token, and a response without it must reach its cap, as in `Game`.
        """
        if seat != self.turn:
            raise ValueError(
                f"{seat} cannot respond: "
                + (f"it is the turn of {self.turn}" if self.turn else "the games are over")
            )
        k = len(self._written)
        rows = self._checked(seat, np.asarray(ids), np.asarray(lengths), self.caps_BN[:, k])
        self._written.append(rows)
        if k + 1 < len(self.seats) and annotates(self.task):
            added = annotation_ids(self.task, list(self.queries), self.responses(seat))
            eos = self.task.tokenizer.eos
            rows = [[*without_end(row, eos), *text] for row, text in zip(rows, added, strict=True)]
            self._annotations[seat] = added
        for shown, row in zip(self._shown, rows, strict=True):
            shown.append(row)

    def _checked(
        self, seat: str, ids_BT: np.ndarray, lengths_B: np.ndarray, cap_B: np.ndarray
    ) -> list[list[int]]:
        """Return the responses, each cut to its length; ValueError for one that is not legal."""
        B, T = len(self.queries), ids_BT.shape[-1]
        V = len(self._eos_V)
        if ids_BT.shape != (B, T) or lengths_B.shape != (B,):
            raise ValueError(
                f"{seat} wrote ids of shape {ids_BT.shape} with lengths of shape {lengths_B.shape}; "
                f"{B} games need ({B}, T) and ({B},)"
            )
        if ids_BT.dtype.kind not in "iu" or lengths_B.dtype.kind not in "iu":
            raise ValueError(
                f"{seat} wrote ids of type {ids_BT.dtype} with lengths of type {lengths_B.dtype}; give whole "
                "numbers"
            )
        _refuse(
            (lengths_B < 1) | (lengths_B > np.minimum(cap_B, T)), seat, "has a length outside 1 to its cap"
        )
        mask_BT = length_mask(lengths_B, T)
        ids_BT = np.where(mask_BT, ids_BT, self.task.tokenizer.pad).astype(np.int64)
        _refuse(((ids_BT < 0) | (ids_BT >= V)).any(axis=1), seat, f"holds an id outside 0 to {V - 1}")
        eos_BT = self._eos_V[ids_BT] & mask_BT
        ended_B = eos_BT[np.arange(B), lengths_B - 1]
        _refuse(eos_BT.sum(axis=1) > ended_B, seat, "goes on after EOS")
        _refuse(~ended_B & (lengths_B < cap_B), seat, "stops before its cap without EOS")
        return [row[:n] for row, n in zip(ids_BT.tolist(), lengths_B.tolist(), strict=True)]

    def responses(self, seat: str) -> list[Response]:
        """Return the response of `seat` in each game."""
        _, k = self._at(seat)
        if k >= len(self._written):
            raise ValueError(f"{seat} has not responded yet; it is the turn of {self.turn}")
        if seat not in self._responses:
            tokenizer = self.task.tokenizer
            self._responses[seat] = [Response.of(ids, tokenizer, seat=seat) for ids in self._written[k]]
        return list(self._responses[seat])

    def annotations(self, seat: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what the task shows behind the response of `seat`: ids [B, A], and lengths [B] from 0."""
        return pack(self._annotations.get(seat, [()] * len(self.queries)), self.task.tokenizer.pad)

    def texts(self, seat: str) -> list[str]:
        """Return the response of `seat` in each game as text."""
        return [response.text for response in self.responses(seat)]

    def scores(self) -> np.ndarray:
        """Return the score of each response, [B, N] float64; the first call scores the whole batch."""
        if self.turn is not None:
            raise ValueError(f"the games are not over; it is the turn of {self.turn}")
        if self._scores_BN is None:
            self._scores_BN = checked_scores(self.task, list(self.queries), self._by_seat())
        return self._scores_BN.copy()

    def payoffs(self) -> np.ndarray:
        """Return the payoff of each seat, [B, N] float64."""
        return self.pay(self.scores())

    def measures(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what the task measures of finished games beside scores: arrays [B] by seat and quantity.

        Empty for games of one seat, and a task that is no `cory_env.tasks.base.MeasuresGames`.
        """
        if not isinstance(self.task, MeasuresGames) or len(self.seats) == 1:
            return {}
        measures = {
            seat: {quantity: np.asarray(values, dtype=np.float64) for quantity, values in of_seat.items()}
            for seat, of_seat in self.task.measure_games(list(self.queries), self._by_seat()).items()
        }
        for seat, quantity, values in (
            (s, q, v) for s, of_seat in measures.items() for q, v in of_seat.items()
        ):
            if (
                seat not in self.seats
                or values.shape != (len(self.queries),)
                or not np.isfinite(values).all()
            ):
                raise ValueError(
                    f"{type(self.task).__module__} measured {quantity!r} of {seat!r} as {values}; return one "
                    f"finite number for each of {len(self.queries)} games, by seat"
                )
        return measures

    def _by_seat(self) -> dict[str, list[Response]]:
        return {seat: self.responses(seat) for seat in self.seats}

    def _at(self, seat: str) -> tuple[View, int]:
        """Return the view and the index of `seat`."""
        if seat not in self.seats:
            raise ValueError(f"there is no seat called {seat!r}; there are {', '.join(self.seats)}")
        k = self.seats.index(seat)
        return self.views[k], k


def _refuse(bad_B: Any, seat: str, fault: str) -> None:
    """Raise a ValueError that names the first game in which the response is bad."""
    if bad_B.any():
        raise ValueError(f"the response of {seat} in game {int(bad_B.argmax())} {fault}")
