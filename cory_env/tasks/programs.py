"""programs: write an expression that maps the given inputs to the given outputs. Right or wrong: 1 or 0.

    f(1)=3 f(2)=5 f(3)=7     ->  x+x+1, or 2*x+1, or any other with these values

Language and interpreter are those of `cory_env.grading.expression_language`, so responses run without a
sandbox. The problems are generated, so there is no data set, no licence and no name on the Hub.
"""

from collections.abc import Sequence

import numpy as np

from cory_env.data.splits import in_test
from cory_env.grading.expression_language import ExpressionError, Program, parse, run
from cory_env.tasks.base import split_of, with_validation
from cory_env.tokenizer import CharTokenizer, Tokenizer
from cory_env.types import Query, Response

POOL = 2048
"""The most functions in all splits together."""

DRAWS = 8 * POOL
"""Expressions drawn to find them."""

SIGNS = "+-*"


class Task:
    """A query lists a function's values at 1, 2, ...; any expression with these values is right.

    A function is identified by its values: no two splits share one.
    """

    correct_from = 1.0

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        operations: int = 2,
        examples: int = 3,
        largest: int = 9,
        signs: str = SIGNS,
        partial: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Draw the functions.

        Args:
            tokenizer: By default one id for each character.
            operations: The most signs in a function.
            examples: Values of the function that a query lists.
            largest: The largest number in a function.
            signs: Signs of the functions, out of `+-*`.
            partial: Score of a wrong response that matches every example, less in proportion to those it
                misses.
            seed: Draws the functions.
        """
        for name, value, most in (
            ("operations", operations, 9),
            ("examples", examples, 99),
            ("largest", largest, 99),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"programs: {name} is {value}; give 1 to {most}")
        if not signs or set(signs) - set(SIGNS):
            raise ValueError(f"programs: signs is {signs!r}; give some of {SIGNS!r}")
        if not 0 <= partial < 1:
            raise ValueError(f"programs: partial is {partial}; give a number from 0 to below 1")
        alphabet = "0123456789xf()=; " + SIGNS
        self.tokenizer: Tokenizer = CharTokenizer(alphabet) if tokenizer is None else tokenizer
        self.partial = partial
        found = functions(operations=operations, examples=examples, largest=largest, signs=signs, seed=seed)
        divided: dict[str, list[Query]] = {"train": [], "test": []}
        for values, program in found.items():
            query = self._query(values, program)
            divided["test" if in_test(query.text) else "train"].append(query)
        for split, queries in divided.items():
            if not queries:
                raise ValueError(
                    f"programs: so few functions ({len(found)}) leave none for {split}; "
                    "raise operations or largest, or give more signs"
                )
        self._queries = with_validation(divided)
        self.max_query = max(len(query.ids) for queries in self._queries.values() for query in queries)

    def _query(self, values: Sequence[int], program: str) -> Query:
        text = " ".join(f"f({x})={value}" for x, value in enumerate(values, start=1))
        return Query(text, tuple(self.tokenizer.encode(text)), {"values": values, "program": program})

    def queries(self, split: str) -> Sequence[Query]:
        """Return functions, at most 2,048 in all splits; `row["program"]` is a solution.

        A fifth of them is `test`, by a hash of the text. Of the others a tenth is `validation`, by the same
        hash; of fewer than ten others none is.
        """
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """Draw one of the train functions uniformly."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score 1 for an expression with all the values, `partial` times their share for one with some."""
        scores = []
        for query, response in zip(queries, responses, strict=True):
            share = matching(response.text, query.row["values"])
            scores.append(1.0 if share == 1 else self.partial * share)
        return scores

    def template(self, seat: str) -> str:
        """Return the examples, every earlier attempt, and a prompt: `f(1)=2 f(2)=3 f(x)=x+2 f(x)=`."""
        attempts = range(int(seat.rsplit("_", 1)[1]))
        return "{query}" + "".join(f" f(x)={{response_{k}}}" for k in attempts) + " f(x)="


def matching(text: str, values: Sequence[int]) -> float:
    """Return the share of `values` at 1, 2, ... that an expression has; 0 if `text` is no expression."""
    try:
        program = parse(text)
    except ExpressionError:
        return 0.0
    return sum(_value(program, x) == value for x, value in enumerate(values, start=1)) / len(values)


def _value(program: Program, x: int) -> int | None:
    try:
        return run(program, x)
    except ExpressionError:
        return None


def values_of(text: str, *, examples: int) -> tuple[int, ...] | None:
    """Return the values of an expression at 1, 2, ...; None if one of them is too large."""
    program = parse(text)
    values = [_value(program, x) for x in range(1, examples + 1)]
    return tuple(value for value in values if value is not None) if None not in values else None


def functions(
    *, operations: int, examples: int, largest: int, signs: str, seed: int
) -> dict[tuple[int, ...], str]:
    """Return values at 1, 2, ... -> the shortest expression drawn with them; constants are left out."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, ...], str] = {}
    for _ in range(DRAWS):
        text = random_expression(rng, int(rng.integers(operations)) + 1, largest=largest, signs=signs)
        values = values_of(text, examples=examples)
        if "x" not in text or values is None or (examples > 1 and len(set(values)) == 1):
            continue
        if values in found or len(found) < POOL:
            found[values] = min(text, found.get(values, text), key=len)
    return found


def random_expression(rng: np.random.Generator, operations: int, *, largest: int, signs: str) -> str:
    """Draw an expression with `operations` signs; operands are `x` or, as often, numbers up to `largest`."""
    if operations == 0:
        return "x" if rng.integers(2) else str(int(rng.integers(largest)) + 1)
    sign = signs[int(rng.integers(len(signs)))]
    first = int(rng.integers(operations))
    left, right = (
        random_expression(rng, count, largest=largest, signs=signs)
        for count in (first, operations - 1 - first)
    )
    if sign == "*":
        left, right = (f"({part})" if set(part) & set("+-") else part for part in (left, right))
    elif sign == "-" and set(right) & set("+-"):
        right = f"({right})"
    return f"{left}{sign}{right}"
