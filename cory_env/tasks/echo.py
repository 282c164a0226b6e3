"""echo: repeat the query. The smallest task with a known best response, scored 1.

Shapes: B responses, Q query tokens, T response tokens.
"""

from collections.abc import Sequence

import numpy as np

from cory_env.arrays import length_mask
from cory_env.tasks.base import split_of, with_validation
from cory_env.tokenizer import CharTokenizer, Tokenizer, start_of
from cory_env.types import Query, Response

POOL = 1024
"""The most queries; short ones over a small alphabet are fewer."""


class Task:
    """The score is the share of query tokens repeated in place; what follows them is ignored."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, length: int = 3) -> None:
        """Draw the queries.

        Args:
            tokenizer: By default one id for each of the letters a to f.
            length: Tokens of a query.
        """
        self.tokenizer: Tokenizer = CharTokenizer("abcdef") if tokenizer is None else tokenizer
        self.max_query = length
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
        self._queries = with_validation({"train": pool[cut:], "test": pool[:cut]})

    def _query(self, ids: list[int]) -> Query:
        return Query(self.tokenizer.decode(ids), tuple(ids))

    def queries(self, split: str) -> Sequence[Query]:
        """Return at most 1,024 distinct queries, the same in every process; a fifth of them are `test`.

        Of the others one in ten is `validation`, by the sha256 of its text; of fewer than ten others none is.
        """
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """Draw one of the train queries uniformly."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score 1 for the query itself, 0 if no token is in its place."""
        return [
            sum(a == b for a, b in zip(query.ids, response.ids, strict=False)) / len(query.ids)
            for query, response in zip(queries, responses, strict=True)
        ]

    def score_arrays(
        self,
        query_BQ: np.ndarray,
        query_length_B: np.ndarray,
        response_BT: np.ndarray,
        length_B: np.ndarray,
        *,
        seat: str,
    ) -> np.ndarray:
        """Return the same scores as `score`, from padded arrays."""
        Q = min(query_BQ.shape[1], response_BT.shape[1])
        both_BQ = length_mask(np.minimum(query_length_B, length_B), Q)
        same_BQ = (query_BQ[:, :Q] == response_BT[:, :Q]) & both_BQ
        score_B: np.ndarray = same_BQ.sum(axis=1) / query_length_B
        return score_B

    def template(self, seat: str) -> str:
        """Return the query, then every earlier response, with nothing between them."""
        return "{query}" + "".join(f"{{response_{k}}}" for k in range(int(seat.rsplit("_", 1)[1])))
