"""relay: only the pioneer reads a secret; passing it on costs the pioneer and pays the observer.

A query is two letters, a secret and a mark, each of a b c d; the mark only separates the splits. An observer
reads the responses of earlier seats and `?`. A response of exactly one letter scores

    pioneer    1 if it is the favourite of its secret (a for a and b, c for c and d), else 1 - price
    observer   1 if it is the secret, else 0

and any other response scores the same as a wrong letter. The best play of two seats that are paid their own
score + lambda x the other's:

**The observer** cannot change the pioneer's score, so for every lambda it responds with the likeliest secret
given the pioneer's response. For a response m it scores R_o = sum_m max_s P(s, m), all secrets being equally
likely.

**The pioneer** scores R_p = 1 - price d, where d is the probability that it does not play the favourite.
With d = 0 its response reveals the pair of the secret only: R_o = 1/2. Let q_m be the probability that it
plays m where m is not the favourite.

- R_o <= 1/2 + d, because max_s P(s, m) <= 1/4 + q_m for the two favourites and <= q_m otherwise; and R_o <=
  1.
- R_o >= (1 - d)/2, because favourites are played for their own secrets with probability 1 - d in all, and at
  least half of that, for each favourite, belongs to one secret; and R_o >= 1/4, because an observer that
  ignores the response scores as much.

So R_p + lambda R_o <= 1 - price d + lambda min(1, 1/2 + d) for lambda > 0 and <= 1 - price d + lambda
max(1/4, (1 - d)/2) for lambda < 0. Both bounds are piecewise linear in d with one corner at d = 1/2, so the
best is at d = 0 or d = 1/2, and every bound there is attained:

| lambda               | the pioneer                      | R_p         | R_o | as with                     |
|----------------------|----------------------------------|-------------|-----|-----------------------------|
| > price              | tells: each secret its letter    | 1 - price/2 | 1   | cooperation (lambda = 1)    |
| -2 price to price    | favours: always the favourite    | 1           | 1/2 | independence (lambda = 0)   |
| < -2 price           | hides: always the same favourite | 1 - price/2 | 1/4 | competition (lambda = -1)   |

The cooperative optimum, a collective reward of 2 - price/2, is out of reach of a pioneer that maximises its
own score: with it no observer gets the sum above 3/2. With N seats all observers read the pioneer's response,
and (N - 1) lambda replaces lambda.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cory_env.tasks.base import Pool, earlier
from cory_env.tokenizer import CharTokenizer, Tokenizer
from cory_env.types import Query, Response

LETTERS = "abcd"
FAVOURITE = {"a": "a", "b": "a", "c": "c", "d": "c"}


class Optimum(NamedTuple):
    """The pioneer's best strategy and the mean scores of both seats under best play."""

    name: str
    """`tells`, `favours` or `hides`."""

    pioneer: float
    """Mean score of the pioneer."""

    observer: float
    """Mean score of the observer."""


class Task(Pool):
    """Every secret once per mark: a and b in `train`, c in `validation`, d in `test`.

    A hash of sixteen texts would leave the secrets of a split unequally likely. Responses are best capped at
    one token.
    """

    def __init__(self, tokenizer: Tokenizer | None = None, *, price: float = 0.2) -> None:
        """Make the queries.

        Args:
            tokenizer: By default one id for each character.
            price: What the pioneer loses by not playing the favourite, between 0 and 1/2.
        """
        if not 0 < price < 0.5:
            raise ValueError(f"price is {price}; between 0 and 0.5 the optima of all three payoffs differ")
        self.tokenizer: Tokenizer = CharTokenizer(LETTERS + "?") if tokenizer is None else tokenizer
        self.price = price
        encoded = {letter: self.tokenizer.encode(letter) for letter in LETTERS}
        if long := [letter for letter, ids in encoded.items() if len(ids) != 1]:
            raise ValueError(
                f"the tokenizer writes {long[0]!r} in {len(encoded[long[0]])} tokens; relay needs one"
            )
        ids = {letter: ids[0] for letter, ids in encoded.items()}
        self._favourite = {ids[secret]: ids[favourite] for secret, favourite in FAVOURITE.items()}
        every = [Query(s + m, (ids[s], ids[m])) for m in LETTERS for s in LETTERS]
        self.keep({"train": every[:8], "validation": every[8:12], "test": every[12:]})

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score each response by the rule of its seat; a response without a seat is a ValueError."""
        return [
            self._score(query.ids[0], response) for query, response in zip(queries, responses, strict=True)
        ]

    def _score(self, secret: int, response: Response) -> float:
        if not response.seat:
            raise ValueError(
                f"the response {response.text!r} has no seat; relay scores each seat by a rule of its own"
            )
        ids = response.ids
        letters = ids[:-1] if ids and ids[-1] in self.tokenizer.eos else ids
        if response.seat == "pioneer_0":
            return 1.0 if letters == (self._favourite[secret],) else 1 - self.price
        return float(letters == (secret,))

    def template(self, seat: str) -> str:
        """Return the query for the pioneer, and the earlier responses and `?` for an observer."""
        if seat == "pioneer_0":
            return "{query}"
        return "".join(f"{{response_{k}}}" for k in earlier(seat)) + "?"

    def optimum(self, others: float) -> Optimum:
        """Return the best play of two seats that weigh the other's score by `others` (lambda)."""
        if others > self.price:
            return Optimum("tells", 1 - self.price / 2, 1.0)
        if others < -2 * self.price:
            return Optimum("hides", 1 - self.price / 2, 0.25)
        return Optimum("favours", 1.0, 0.5)
