"""Code: two seats turn words into an expression; the reward is the share of tests that it passes.

    python -m examples.worked_tasks.code_from_words
    python -m examples.worked_tasks.code_from_words --model path/to/model --data problems.jsonl

Your file needs the columns `prompt` and `tests`, pairs [x, f(x)]. Expressions run in the interpreter of
`examples.worked_tasks.expressions`, which needs no sandbox. The small model skips a step as often as not.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cory
from examples.worked_tasks.expressions import ExpressionError, parse
from examples.worked_tasks.expressions import run as evaluate
from examples.worked_tasks.small_model import Options, print_gain, settings, small_model

WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}
POINTS = (0, 1, 2, 5)


def steps_of(drawn: random.Random) -> list[tuple[str, int]]:
    """Two or three operations, one after another."""
    return [(drawn.choice("+-*"), drawn.randint(2, 9)) for _ in range(drawn.randint(2, 3))]


def words_of(steps: Sequence[tuple[str, int]]) -> str:
    """The operations in words."""
    return "take x, " + ", ".join(f"{WORDS[sign]} {number}" for sign, number in steps)


def expression(steps: Sequence[tuple[str, int]]) -> str:
    """The operations as an expression: `(x+2)*3`."""
    text = "x"
    for sign, number in steps:
        text = (
            f"({text})*{number}" if sign == "*" and ("+" in text or "-" in text) else f"{text}{sign}{number}"
        )
    return text


def attempt(drawn: random.Random, steps: list[tuple[str, int]]) -> str:
    """The expression; as often as not a step of it is missing."""
    if drawn.random() < 0.5:
        gone = drawn.randrange(len(steps))
        steps = steps[:gone] + steps[gone + 1 :]
    return expression(steps)


def document(drawn: random.Random) -> str:
    """A document to pretrain on: words and code, a third of them with an earlier attempt."""
    steps = steps_of(drawn)
    before = f"Reference:\n{attempt(drawn, steps)}\n\n" if drawn.random() < 1 / 3 else ""
    return f"{before}{words_of(steps)}\nf(x) = {attempt(drawn, steps)}"


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Generated rows: words, and values of the function."""
    drawn, made = random.Random(seed), []
    for _ in range(count):
        steps = steps_of(drawn)
        program = parse(expression(steps))
        tests = [[x, evaluate(program, x)] for x in POINTS]
        made.append({"prompt": f"{words_of(steps)}\nf(x) =", "tests": tests})
    return made


def passes(
    prompts: Sequence[str],
    completions: Sequence[str],
    tests: Sequence[Sequence[Sequence[int]]],
    **columns: Any,
) -> list[float]:
    """The share of the tests that an expression passes; 0 for a text that is none."""
    return [_share(text, of) for text, of in zip(completions, tests, strict=True)]


def _share(text: str, tests: Sequence[Sequence[int]]) -> float:
    try:
        program = parse(text.strip())
        return sum(evaluate(program, x) == value for x, value in tests) / len(tests)
    except ExpressionError:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Code(Options):
    """Expressions from words by two seats."""

    run: Path = Path("runs/code")


def main(options: Options) -> cory.Run:
    """Pretrain the model, train both seats, print the gain."""
    run = cory.train(
        model=small_model(options, document),
        dataset=options.data or rows(2000),
        reward=passes,
        max_response=(16, 16),
        **settings(options),
    )
    print_gain(run)
    return run


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Code, description=__doc__))
