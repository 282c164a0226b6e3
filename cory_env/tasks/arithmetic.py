"""arithmetic: say what a small sum comes to. Exact match: 1 or 0."""

import math
from collections.abc import Sequence

import numpy as np

from cory_env.game import Query, Response
from cory_env.tasks.base import split_of
from cory_env.tokenizer import CharTokenizer, Tokenizer

POOL = 1024
"""Problems to draw from, where there are so many."""

SIGNS = "+-*"


class Task:
    """`12+7=` asks for `19`. Negative results begin with `-`; spaces around the answer do not count."""

    def __init__(
        self, tokenizer: Tokenizer | None = None, *, digits: int = 1, terms: int = 2, signs: str = "+"
    ) -> None:
        """A problem has `terms` numbers of up to `digits` digits, with one of the `signs` between them."""
        if digits < 1 or terms < 2 or not signs or set(signs) - set(SIGNS):
            raise ValueError(
                f"arithmetic cannot have digits={digits}, terms={terms}, signs={signs!r}; "
                f"give digits from 1, terms from 2, signs out of {SIGNS!r}"
            )
        self.tokenizer: Tokenizer = CharTokenizer("0123456789=; " + SIGNS) if tokenizer is None else tokenizer
        rng = np.random.default_rng(0)
        drawn = rng.integers(10**digits, size=(8 * POOL, terms)).tolist()
        problems = [(signs[i % len(signs)], *numbers) for i, numbers in enumerate(drawn)]
        pool = [self._query(sign, numbers) for sign, *numbers in dict.fromkeys(problems)][:POOL]
        self.max_query = max(len(query.ids) for query in pool)
        cut = len(pool) // 5
        self._queries = {"train": pool[cut:], "test": pool[:cut]}

    def _query(self, sign: str, numbers: Sequence[int]) -> Query:
        text = sign.join(map(str, numbers)) + "="
        first, *rest = numbers
        answer = {"+": sum(numbers), "-": first - sum(rest), "*": math.prod(numbers)}[sign]
        return Query(text, tuple(self.tokenizer.encode(text)), {"answer": str(answer)})

    def queries(self, split: str) -> Sequence[Query]:
        """At most 1,024 distinct problems, the same in every process: four in five are `train`."""
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train problems, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """1 for the answer and nothing else, 0 for anything else."""
        return [
            float(response.text.strip() == query.row["answer"])
            for query, response in zip(queries, responses, strict=True)
        ]

    def template(self, seat: str) -> str:
        """The problem, after every earlier response as an attempt at it: `3+4=7;3+4=`."""
        attempts = range(int(seat.rsplit("_", 1)[1]))
        return "".join(f"{{query}}{{response_{k}}};" for k in attempts) + "{query}"
