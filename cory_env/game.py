"""The sequential game of CORY over token ids, in plain Python.

The pioneer responds to the query token by token; then each observer reads the prompt that its view gives and
responds too. No spaces, no arrays, no models: every rule can be tested with `==`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cory_env.types import Query
from cory_env.views import View

Annotate = Callable[[Query, Sequence[int], str], tuple[int, ...]]
"""(query, ids of a finished response, seat) -> ids that later seats read behind it."""


class Game:
    """One game in progress. A response ends with an EOS id or at its cap, whichever comes first."""

    def __init__(
        self,
        query: Query,
        *,
        views: Sequence[View],
        eos: Iterable[int],
        max_response: int | Sequence[int],
        annotate: Annotate | None = None,
    ) -> None:
        """`max_response` is the cap of every response in tokens, or one cap per seat.

        `annotate` returns the ids that later seats read behind a finished response.
        """
        self.query = query
        self.views = tuple(views)
        self.seats = tuple(view.seat for view in views)
        self.eos = frozenset(eos)
        self.caps = (max_response,) * len(views) if isinstance(max_response, int) else tuple(max_response)
        if not query.ids:
            raise ValueError(f"the query {query.text!r} has no tokens; a game starts from at least one")
        if len(self.caps) != len(views) or min(self.caps) < 1:
            raise ValueError(
                f"max_response is {max_response}; give one cap from 1 for each of {len(views)} seats"
            )
        self._responses: tuple[list[int], ...] = tuple([] for _ in views)
        self._annotate = annotate
        self._annotations: list[tuple[int, ...]] = []

    @property
    def turn(self) -> str | None:
        """The seat to act: the first whose response is unfinished; None once all are finished."""
        for seat, ids, cap in zip(self.seats, self._responses, self.caps, strict=True):
            if len(ids) < cap and not (ids and ids[-1] in self.eos):
                return seat
        return None

    @property
    def responses(self) -> dict[str, tuple[int, ...]]:
        """A copy of the tokens each seat has chosen so far, EOS included."""
        return {seat: tuple(ids) for seat, ids in zip(self.seats, self._responses, strict=True)}

    def play(self, token: int) -> None:
        """Append `token` to the response of the seat to act."""
        k = self._acting()
        self._responses[k].append(token)
        self._note_end(k)

    def _acting(self) -> int:
        if (turn := self.turn) is None:
            raise ValueError("the game is over: every response is finished; start a new Game")
        return self.seats.index(turn)

    def begun(self, ids: Sequence[int]) -> list[int]:
        """Cut `ids` after the token that ends the response of the seat to act: the first EOS, or its cap.

        The rest of `ids` is ignored, so that callers can pass rows of one fixed length. A row that ends
        before the response does is a ValueError.
        """
        k = self._acting()
        written, cap = len(self._responses[k]), self.caps[k]
        room = cap - written
        end = next((i + 1 for i, token in enumerate(ids[:room]) if token in self.eos), room)
        if len(ids) < end:
            raise ValueError(
                f"{self.turn} wrote {written + len(ids)} tokens without EOS; "
                f"go on to EOS or to its cap of {cap}"
            )
        return list(ids[:end])

    def respond(self, ids: Sequence[int]) -> None:
        """Play a whole response of the seat to act; its last token, and no earlier one, must end it."""
        response, whole = self._responses[self._acting()], self.begun(ids)
        if len(ids) > len(whole):
            written, ended = len(response) + len(ids), len(response) + len(whole)
            raise ValueError(f"{self.turn} wrote {written} tokens; its response ended after {ended}")
        response += whole
        self._note_end(len(self._annotations))

    def _note_end(self, k: int) -> None:
        """Add the annotation of the response of seat `k` once it is finished."""
        if self.turn != self.seats[k]:
            ids = self._responses[k]
            self._annotations.append(self._annotate(self.query, ids, self.seats[k]) if self._annotate else ())

    def _shown(self, k: int) -> list[int]:
        """Return what later seats read of seat `k`: its response without EOS, and its annotation."""
        ids = self._responses[k]
        if k >= len(self._annotations) or not self._annotations[k]:
            return ids
        return [*(ids[:-1] if ids[-1] in self.eos else ids), *self._annotations[k]]

    def flat(self, *, max_query: int, max_response: int, pad: int) -> list[int]:
        """Lay out the whole game as one row of a fixed length, for centralised critics.

        The row holds the query and the responses, each padded; their lengths; the caps; and the index of the
        seat to act, N (the number of seats) if the game is over.
        """
        turn = len(self.seats) if self.turn is None else self.seats.index(self.turn)
        row = [*self.query.ids, *[pad] * (max_query - len(self.query.ids))]
        for ids in self._responses:
            row += [*ids, *[pad] * (max_response - len(ids))]
        return [*row, len(self.query.ids), *map(len, self._responses), *self.caps, turn]

    def get_state(self) -> dict[str, Any]:
        """Return the game as plain values, from which `from_state` resumes it.

        They can be written as JSON if the row of the query can.
        """
        query = {"text": self.query.text, "ids": list(self.query.ids), "row": dict(self.query.row)}
        return {"query": query, "caps": list(self.caps), "responses": [list(ids) for ids in self._responses]}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        *,
        views: Sequence[View],
        eos: Iterable[int],
        annotate: Annotate | None = None,
    ) -> "Game":
        """Rebuild the game that `get_state` returned; `views`, `eos` and `annotate` must be the same."""
        query = Query(state["query"]["text"], tuple(state["query"]["ids"]), state["query"]["row"])
        game = cls(query, views=views, eos=eos, max_response=state["caps"], annotate=annotate)
        for ids in state["responses"]:
            for token in ids:
                game.play(token)
        return game

    def prompt(self, seat: str) -> tuple[int, ...]:
        """Return the token ids that `seat` conditions on, given the responses so far."""
        shown = [self._shown(k) for k in range(len(self.seats))]
        return self.views[self.seats.index(seat)].prompt(self.query.ids, shown)
