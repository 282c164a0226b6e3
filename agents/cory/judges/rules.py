"""Rule-based judges, made from a text: a regular expression, or equality by Math-Verify.

They are called like user functions, in the same worker processes.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cory_env.grading.numeric_answers import text_of_answer

Completion = str | Sequence[Mapping[str, str]]

_PLAIN = re.compile(r"\$|\\boxed|\\[(\[]|#|^[-\d\s.,]+$")
"""A gold answer that Math-Verify reads as it is; it takes LaTeX only between marks."""


def matches(pattern: str) -> Callable[..., list[float]]:
    """Return a judge: 1 if `pattern` is found in the completion, else 0.

    `.` matches line breaks only with `(?s)`.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression ({error}); fix the pattern") from error

    def score(completions: Sequence[Completion]) -> list[float]:
        return [float(compiled.search(content(completion)) is not None) for completion in completions]

    vars(score)["correct_from"] = 1.0
    return score


def equals(column: str) -> Callable[..., list[float]]:
    """Return a judge: 1 if Math-Verify finds the completion equal to the gold answer in `column`, else 0.

    A gold answer may be LaTeX without dollars, as in MATH. ValueError for one that is no mathematics.
    """
    if not column:
        raise ValueError("names no column; write math-verify:COLUMN, the column of the gold answers")
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise ValueError(
            f"needs the package math-verify ({error}): pip install 'cory[math]', or math-verify itself"
        ) from error

    def read(given: Any) -> list[Any]:
        gold = text_of_answer(given)
        forms = [gold, f"${gold}$"]
        ordered = forms if _PLAIN.search(gold) else reversed(forms)
        parsed: list[Any] | None = next(filter(None, map(parse, ordered)), None)
        if parsed is None:
            raise ValueError(f"the gold answer {gold!r} in column {column!r} holds no number or formula")
        return parsed

    def score(completions: Sequence[Completion], **columns: Sequence[Any]) -> list[float]:
        return [
            float(verify(read(gold), parse(content(completion))))
            for completion, gold in zip(completions, columns[column], strict=True)
        ]

    kind = inspect.Parameter.KEYWORD_ONLY
    needed = [inspect.Parameter(name, kind) for name in ("completions", column)]
    vars(score)["__signature__"] = inspect.Signature(needed)
    vars(score)["correct_from"] = 1.0
    return score


def content(completion: Completion) -> str:
    """Return the text of a completion, which is a text or a list of chat messages."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


KINDS: dict[str, Callable[[str], Callable[..., list[float]]]] = {"regex": matches, "math-verify": equals}
"""Functions that make the judge of each kind."""
