"""Judges that are rules: made from a text, called like any reward function, in the same guarded processes."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Completion = str | Sequence[Mapping[str, str]]


def matches(pattern: str) -> Callable[..., list[float]]:
    """1 for a completion in which `pattern` is found, 0 elsewhere; `.` matches line breaks by `(?s)` only."""
    try:
        found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression ({error}); mend the pattern") from error

    def score(completions: Sequence[Completion]) -> list[float]:
        return [float(found.search(content(completion)) is not None) for completion in completions]

    return score


def equals(column: str) -> Callable[..., list[float]]:
    """1 for a completion whose answer Math-Verify finds equal to the gold one in `column`, 0 elsewhere."""
    if not column:
        raise ValueError("names no column; write math-verify:COLUMN, where the correct answers stand")
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise ValueError(
            f"needs the package math-verify ({error}): pip install 'cory[math]', or math-verify itself"
        ) from error

    def score(completions: Sequence[Completion], **columns: Sequence[Any]) -> list[float]:
        return [
            float(verify(parse(str(gold)), parse(content(completion))))
            for completion, gold in zip(completions, columns[column], strict=True)
        ]

    kind = inspect.Parameter.KEYWORD_ONLY
    needed = [inspect.Parameter(name, kind) for name in ("completions", column)]
    vars(score)["__signature__"] = inspect.Signature(needed)
    return score


def content(completion: Completion) -> str:
    """What was written, be it a text or the message of a chat."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


KINDS: dict[str, Callable[[str], Callable[..., list[float]]]] = {"regex": matches, "math-verify": equals}
"""What makes the judge of each kind."""
