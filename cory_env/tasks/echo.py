"""echo: repeat the query. The smallest task with a known best response, scored 1."""

from collections.abc import Sequence

import numpy as np

from cory_env.tasks.base import Pool, earlier
from cory_env.tokenizer import CharTokenizer, Tokenizer, start_of
from cory_env.types import Query, Response

POOL = 1024
"""The most queries; short ones over a small alphabet are fewer."""


class Task(Pool):
    """The score is the share of query tokens repeated in place; what follows them is ignored."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, length: int = 3) -> None:
        """Draw the queries.

        Args:
            tokenizer: By default one id for each of the letters a to f.
            length: Tokens of a query.
        """
        self.tokenizer: Tokenizer = CharTokenizer("abcdef") if tokenizer is None else tokenizer
        special = {*self.tokenizer.eos, self.tokenizer.pad, *start_of(self.tokenizer)}
        letters = np.array([i for i in range(self.tokenizer.vocab_size) if i not in special])
        if length < 1 or len(letters) < 2:
            raise ValueError(
                f"echo of length {length} over {len(letters)} letters has nothing to repeat; give more"
            )
        rng = np.random.default_rng(0)
        drawn = np.unique(rng.choice(letters, size=(4 * POOL, length)), axis=0)
        pool = [self._query(ids) for ids in rng.permutation(drawn)[:POOL].tolist()]
        cut = max(1, len(pool) // 5)
        self.keep({"train": pool[cut:], "test": pool[:cut]})

    def _query(self, ids: list[int]) -> Query:
        return Query(self.tokenizer.decode(ids), tuple(ids))

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score 1 for the query itself, 0 if no token is in its place."""
        return [
            sum(a == b for a, b in zip(query.ids, response.ids, strict=False)) / len(query.ids)
            for query, response in zip(queries, responses, strict=True)
        ]

    def template(self, seat: str) -> str:
        """Return the query, then every earlier response, with nothing between them."""
        return "{query}" + "".join(f"{{response_{k}}}" for k in earlier(seat))
