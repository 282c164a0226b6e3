"""arithmetic: small sums, with the result only or worked out step by step. Exact match: 1 or 0.

    3+4=            ->  7
    37 + 48 - 12    ->  37 + 48 = 85          (worked)
                        85 - 12 = 73
                        #### 73

The problems are generated, so there is no data set, no licence and no name on the Hub.
"""

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cory_env.data.splits import in_test
from cory_env.grading.numeric_answers import is_correct
from cory_env.tasks._word_problem import paper_template
from cory_env.tasks.base import Pool, earlier
from cory_env.tokenizer import CharTokenizer, Tokenizer, encode_inside
from cory_env.types import Query, Response

POOL = 1024
"""The most problems without steps."""

WORKED_POOL = 5120
"""The most worked problems; more than the others, so that policies train on each only a few times."""

SIGNS = "+-*"

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}

VERDICTS = ("\nwrong", "\nright")
"""What observers read behind a response that scored 0 or 1, with `verdict`."""

PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


class Step(NamedTuple):
    """One line of a worked solution: `37 + 48 = 85`."""

    left: int
    sign: str
    right: int
    result: int


class Task(Pool):
    """The response to `12+7=` is `19`; negative results begin with `-`.

    There are up to 1,024 distinct problems, or 5,120 if worked, the same in every process. The first fifth of
    them is `test`, or, if worked, those chosen by a hash of their text, the same at every difficulty.

    With `worked`, the response to `12 + 7` holds the steps and, behind `####`, `19`. These problems may mix
    their signs, products come first, and no step goes below 0.
    """

    correct_from: float | None = 1.0

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        digits: int = 1,
        terms: int = 2,
        signs: str = "+",
        worked: bool = False,
        verdict: bool = False,
    ) -> None:
        """Make the problems.

        Args:
            tokenizer: By default one id for each character.
            digits: The most digits of a number.
            terms: Numbers of a problem.
            signs: Signs between the numbers, out of `+-*`.
            worked: Whether a response holds the steps and, behind `####`, the answer.
            verdict: Whether observers read behind each earlier response whether it is right.
        """
        if digits < 1 or terms < 2 or not signs or set(signs) - set(SIGNS):
            raise ValueError(
                f"arithmetic cannot have digits={digits}, terms={terms}, signs={signs!r}; "
                f"give digits from 1, terms from 2, signs out of {SIGNS!r}"
            )
        if verdict and not worked:
            raise ValueError("arithmetic: verdict needs worked problems, whose text can hold it; set worked")
        alphabet = PRINTABLE if worked else "0123456789=; " + SIGNS
        self.tokenizer: Tokenizer = CharTokenizer(alphabet) if tokenizer is None else tokenizer
        self.worked = worked
        verdicts = VERDICTS if verdict else ()
        self.max_annotation = max((len(encode_inside(self.tokenizer, v)) for v in verdicts), default=0)
        if worked:
            problems = worked_problems(digits=digits, terms=terms, signs=signs)
            pool = [self._query(f" {text}", answer) for text, answer in problems.items()]
            train = [query for query in pool if not in_test(query.text)]
            test = [query for query in pool if in_test(query.text)]
        else:
            problems = plain_problems(digits=digits, terms=terms, signs=signs)
            pool = [self._query(text, answer) for text, answer in problems.items()]
            cut = len(pool) // 5
            train, test = pool[cut:], pool[:cut]
        self.keep({"train": train, "test": test})

    def _query(self, text: str, answer: str) -> Query:
        ids = encode_inside(self.tokenizer, text) if self.worked else self.tokenizer.encode(text)
        return Query(text.strip(), tuple(ids), {"answer": answer})

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score 1 for exactly the result (worked: for the right final number), 0 for anything else."""
        pairs = [(r.text, q.row["answer"]) for q, r in zip(queries, responses, strict=True)]
        if self.worked:
            return [float(is_correct(text, answer)) for text, answer in pairs]
        return [float(text.strip() == answer) for text, answer in pairs]

    def annotations(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[str]:
        """Return the verdict on each response, which observers read with `verdict`."""
        return [VERDICTS[int(score)] for score in self.score(queries, responses)]

    def template(self, seat: str) -> str:
        """Return every earlier attempt at the problem, then the problem: `3+4=7;3+4=`.

        Worked problems have the template of gsm8k, `cory_env.tasks._word_problem.paper_template`.
        """
        if self.worked:
            return paper_template(seat)
        return "".join(f"{{query}}{{response_{k}}};" for k in earlier(seat)) + "{query}"


def _draw(pool: int, *, digits: int, terms: int) -> list[list[int]]:
    """Draw 8 times as many rows of numbers as the pool holds, since some will be dropped."""
    rows: list[list[int]] = np.random.default_rng(0).integers(10**digits, size=(8 * pool, terms)).tolist()
    return rows


def plain_problems(*, digits: int, terms: int, signs: str) -> dict[str, str]:
    """Return problem -> result; each problem has one sign throughout, and the signs alternate."""
    problems: dict[str, str] = {}
    for i, (first, *rest) in enumerate(_draw(POOL, digits=digits, terms=terms)):
        sign = signs[i % len(signs)]
        answer = {"+": first + sum(rest), "-": first - sum(rest), "*": first * math.prod(rest)}[sign]
        problems[sign.join(map(str, (first, *rest))) + "="] = str(answer)
    return dict(list(problems.items())[:POOL])


def worked_problems(*, digits: int, terms: int, signs: str) -> dict[str, str]:
    """Return problem -> worked solution; every sign is drawn by itself."""
    rng, problems = np.random.default_rng(1), dict[str, str]()
    for numbers in _draw(WORKED_POOL, digits=digits, terms=terms):
        between = [signs[k] for k in rng.integers(len(signs), size=terms - 1)]
        done = steps(numbers, between)
        if min(step.result for step in done) >= 0:
            problems[expression(numbers, between)] = worked(done)
        if len(problems) == WORKED_POOL:
            break
    return problems


def expression(numbers: Sequence[int], signs: Sequence[str]) -> str:
    """Write a problem out: `37 + 48 - 12`."""
    return str(numbers[0]) + "".join(f" {s} {n}" for s, n in zip(signs, numbers[1:], strict=True))


def steps(numbers: Sequence[int], signs: Sequence[str]) -> list[Step]:
    """Return the operations of a problem in order: products first, otherwise from left to right."""
    numbers, signs, done = list(numbers), list(signs), []
    while signs:
        i = next((i for i, sign in enumerate(signs) if sign == "*"), 0)
        left, right = numbers[i : i + 2]
        sign = signs.pop(i)
        numbers[i : i + 2] = [OPERATIONS[sign](left, right)]
        done.append(Step(left, sign, right, numbers[i]))
    return done


def worked(done: Sequence[Step]) -> str:
    """Write a solution out: a line for each step, then `####` and the last result."""
    lines = "".join(f"{step.left} {step.sign} {step.right} = {step.result}\n" for step in done)
    return f"{lines}#### {done[-1].result}"
