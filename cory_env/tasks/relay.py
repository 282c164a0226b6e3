"""relay: only the pioneer reads the secret; telling it costs the pioneer and earns the observer.

A query is two letters, a secret and a mark, each of a b c d; the mark means nothing and tells the splits
apart. An observer reads what earlier seats said and `?`. A response that is one letter alone scores

    pioneer    1 if it is the favourite of its secret (a for a and b, c for c and d), else 1 - price
    observer   1 if it is the secret, else 0

and any other response scores the same as a wrong letter. What is best, for two seats paid own + lambda x
other:

**The observer** cannot change what the pioneer scores, so for every lambda it names the likeliest secret
given what it heard. If m is what it hears, it scores R_o = sum_m max_s P(s, m), secrets being equally
likely.

**The pioneer** earns R_p = 1 - price d, where d is how often it says something else than the favourite.
Never doing so (d = 0) tells the pair: R_o = 1/2. Let q_m be how often it says m against the favourite.

- R_o <= 1/2 + d, because max_s P(s, m) <= 1/4 + q_m for the two favourites and <= q_m otherwise; and R_o <=
  1.
- R_o >= (1 - d)/2, because the favourites are said rightly with probability 1 - d in all, and of these half
  or more are one secret; and R_o >= 1/4, because a deaf observer scores as much.

So R_p + lambda R_o <= 1 - price d + lambda min(1, 1/2 + d) for lambda > 0 and <= 1 - price d + lambda
max(1/4, (1 - d)/2) for lambda < 0. Both bounds are piecewise linear in d with one corner at d = 1/2, so the
best is at d = 0 or d = 1/2, and all of it can be had:

| lambda               | the pioneer                      | R_p         | R_o | as with                     |
|----------------------|----------------------------------|-------------|-----|-----------------------------|
| > price              | tells: each secret its letter    | 1 - price/2 | 1   | cooperation (lambda = 1)    |
| -2 price to price    | favours: always the favourite    | 1           | 1/2 | independence (lambda = 0)   |
| < -2 price           | hides: always the same favourite | 1 - price/2 | 1/4 | competition (lambda = -1)   |

The cooperative optimum, 2 - price/2 together, is out of reach of a pioneer that looks after itself: with it
no observer gets the sum above 3/2. With N seats all observers hear the pioneer, and (N - 1) lambda stands
for lambda.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cory_env.game import Query, Response
from cory_env.tasks.base import split_of
from cory_env.tokenizer import CharTokenizer, Tokenizer

LETTERS = "abcd"
FAVOURITE = {"a": "a", "b": "a", "c": "c", "d": "c"}


class Optimum(NamedTuple):
    """What the pioneer does and both score, on average, when both play best."""

    name: str
    """`tells`, `favours` or `hides`."""

    pioneer: float
    observer: float


class Task:
    """Sixteen queries, of which those marked `d` are `test`. Responses are best capped at one token."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, price: float = 0.2) -> None:
        """`price`, between 0 and 1/2, is what the pioneer loses by not saying the favourite."""
        if not 0 < price < 0.5:
            raise ValueError(f"price is {price}; between 0 and 0.5 all three ways to be paid differ")
        self.tokenizer: Tokenizer = CharTokenizer(LETTERS + "?") if tokenizer is None else tokenizer
        self.price = price
        self.max_query = 2
        encoded = {letter: self.tokenizer.encode(letter) for letter in LETTERS}
        if long := [letter for letter, ids in encoded.items() if len(ids) != 1]:
            raise ValueError(
                f"the tokenizer writes {long[0]!r} in {len(encoded[long[0]])} tokens; relay needs one"
            )
        ids = {letter: ids[0] for letter, ids in encoded.items()}
        self._favourite = {ids[secret]: ids[favourite] for secret, favourite in FAVOURITE.items()}
        made = [Query(s + m, (ids[s], ids[m])) for m in LETTERS for s in LETTERS]
        self._queries = {"train": made[:12], "test": made[12:]}

    def queries(self, split: str) -> Sequence[Query]:
        """Every secret once per mark: a, b and c in `train`, d in `test`."""
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train queries, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """By what the seat is asked for; a response must say whose it is."""
        return [
            self._score(query.ids[0], response) for query, response in zip(queries, responses, strict=True)
        ]

    def _score(self, secret: int, response: Response) -> float:
        if not response.seat:
            raise ValueError(
                f"the response {response.text!r} has no seat; relay asks each seat for something else"
            )
        ids = response.ids
        said = ids[:-1] if ids and ids[-1] in self.tokenizer.eos else ids
        if response.seat == "pioneer_0":
            return 1.0 if said == (self._favourite[secret],) else 1 - self.price
        return float(said == (secret,))

    def template(self, seat: str) -> str:
        """The query for the pioneer; for observers what was said before and `?`, without the query."""
        if seat == "pioneer_0":
            return "{query}"
        return "".join(f"{{response_{k}}}" for k in range(int(seat.rsplit("_", 1)[1]))) + "?"

    def optimum(self, others: float) -> Optimum:
        """The best play for two seats when the other's score counts `others` (lambda) times one's own."""
        if others > self.price:
            return Optimum("tells", 1 - self.price / 2, 1.0)
        if others < -2 * self.price:
            return Optimum("hides", 1 - self.price / 2, 0.25)
        return Optimum("favours", 1.0, 0.5)
