"""arithmetic: say what a small sum comes to, or work it out step by step. Exact match: 1 or 0.

    3+4=            ->  7
    37 + 48 - 12    ->  37 + 48 = 85          (worked)
                        85 - 12 = 73
                        #### 73

Problems are made here, so there is no data set, no licence and no name on the Hub.

Committed runs, worked, four numbers (benchmarks/arithmetic_study.py, the presets pocket-arithmetic and -ppo,
three seeds), held-out sums right in one try: 38 % -> 60 % for each policy of CORY, 68 % for single-agent PPO.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cory_env.answers import is_correct
from cory_env.game import Query, Response
from cory_env.problems import worded
from cory_env.rows import text_hash
from cory_env.tasks.base import split_of
from cory_env.tokenizer import CharTokenizer, Tokenizer, encode_inside

POOL = 1024
"""Problems to draw from, where there are so many."""

WORKED_POOL = 5120
"""The same of worked problems: there are more of them, and policies learn from each a few times only."""

SIGNS = "+-*"

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}

PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


class Step(NamedTuple):
    """One line of a worked answer: `37 + 48 = 85`."""

    left: int
    sign: str
    right: int
    result: int


class Task:
    """`12+7=` asks for `19`, and negative results begin with `-`.

    Worked, `12 + 7` asks for steps and, behind `####`, `19`. These problems may mix their signs, products
    come first, and no step goes below 0.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        digits: int = 1,
        terms: int = 2,
        signs: str = "+",
        worked: bool = False,
    ) -> None:
        """A problem has `terms` numbers of up to `digits` digits, with one of the `signs` between them."""
        if digits < 1 or terms < 2 or not signs or set(signs) - set(SIGNS):
            raise ValueError(
                f"arithmetic cannot have digits={digits}, terms={terms}, signs={signs!r}; "
                f"give digits from 1, terms from 2, signs out of {SIGNS!r}"
            )
        alphabet = PRINTABLE if worked else "0123456789=; " + SIGNS
        self.tokenizer: Tokenizer = CharTokenizer(alphabet) if tokenizer is None else tokenizer
        self.worked = worked
        if worked:
            problems = worked_problems(digits=digits, terms=terms, signs=signs)
            made = [self._query(f" {text}", answer) for text, answer in problems.items()]
            self._queries = {
                "train": [query for query in made if not held_out(query.text)],
                "test": [query for query in made if held_out(query.text)],
            }
        else:
            plain = plain_problems(digits=digits, terms=terms, signs=signs)
            pool = [self._query(text, answer) for text, answer in plain.items()]
            cut = len(pool) // 5
            self._queries = {"train": pool[cut:], "test": pool[:cut]}
        self.max_query = max(len(query.ids) for queries in self._queries.values() for query in queries)

    def _query(self, text: str, answer: str) -> Query:
        encode = encode_inside if self.worked else _encode
        return Query(text.strip(), tuple(encode(self.tokenizer, text)), {"answer": answer})

    def queries(self, split: str) -> Sequence[Query]:
        """Distinct problems, the same in every process: about four in five are `train`.

        Up to 1,024; of worked ones 5,120, divided by their text, whatever the difficulty (`held_out`).
        """
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train problems, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """1 for the answer and nothing else (worked: for the right final number), 0 for anything else."""
        pairs = [(r.text, q.row["answer"]) for q, r in zip(queries, responses, strict=True)]
        if self.worked:
            return [float(is_correct(text, answer)) for text, answer in pairs]
        return [float(text.strip() == answer) for text, answer in pairs]

    def template(self, seat: str) -> str:
        """The problem, after every earlier response as an attempt at it: `3+4=7;3+4=`.

        Worked: as in gsm8k, by `cory_env.problems.worded`.
        """
        if self.worked:
            return worded(seat)
        attempts = range(int(seat.rsplit("_", 1)[1]))
        return "".join(f"{{query}}{{response_{k}}};" for k in attempts) + "{query}"


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text)


def _drawn(pool: int, *, digits: int, terms: int) -> list[list[int]]:
    """More rows of numbers than are needed, since some will be dropped."""
    drawn: list[list[int]] = np.random.default_rng(0).integers(10**digits, size=(8 * pool, terms)).tolist()
    return drawn


def plain_problems(*, digits: int, terms: int, signs: str) -> dict[str, str]:
    """Problem -> answer, each with one of the signs throughout, which take turns."""
    made: dict[str, str] = {}
    for i, (first, *rest) in enumerate(_drawn(POOL, digits=digits, terms=terms)):
        sign = signs[i % len(signs)]
        answer = {"+": first + sum(rest), "-": first - sum(rest), "*": first * math.prod(rest)}[sign]
        made[sign.join(map(str, (first, *rest))) + "="] = str(answer)
    return dict(list(made.items())[:POOL])


def worked_problems(*, digits: int, terms: int, signs: str) -> dict[str, str]:
    """Problem -> worked answer; the signs are drawn one by one."""
    chance, made = np.random.default_rng(1), dict[str, str]()
    for numbers in _drawn(WORKED_POOL, digits=digits, terms=terms):
        between = [signs[k] for k in chance.integers(len(signs), size=terms - 1)]
        done = steps(numbers, between)
        if min(step.result for step in done) >= 0 and len(made) < WORKED_POOL:
            made[expression(numbers, between)] = worked(done)
    return made


def expression(numbers: Sequence[int], signs: Sequence[str]) -> str:
    """`37 + 48 - 12`."""
    return str(numbers[0]) + "".join(f" {s} {n}" for s, n in zip(signs, numbers[1:], strict=True))


def steps(numbers: Sequence[int], signs: Sequence[str]) -> list[Step]:
    """One operation at a time, products first, otherwise from left to right."""
    return list(_steps(list(numbers), list(signs)))


def _steps(numbers: list[int], signs: list[str]) -> Iterator[Step]:
    while signs:
        i = next((i for i, sign in enumerate(signs) if sign == "*"), 0)
        left, right = numbers[i : i + 2]
        sign = signs.pop(i)
        numbers[i : i + 2] = [OPERATIONS[sign](left, right)]
        yield Step(left, sign, right, numbers[i])


def worked(done: Sequence[Step]) -> str:
    """The answer in full: a line for each step, then the mark and the last result."""
    lines = "".join(f"{step.left} {step.sign} {step.right} = {step.result}\n" for step in done)
    return f"{lines}#### {done[-1].result}"


def held_out(problem: str) -> bool:
    """Whether a worked problem belongs to `test`: a function of its text alone, one in five."""
    return text_hash(problem) % 5 == 0
