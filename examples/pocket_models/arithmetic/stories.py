"""Names, things and stories that the word problems of the arithmetic corpus are built from.

A story is a text and the calculation that solves it, step by step: `x + y, _ * z` adds x and y and multiplies
the result by z. In the text, `{A}` and `{B}` are names, `{He}`, `{he}`, `{him}` and `{his}` are A's pronouns,
`{things}` and `{others}` are what is counted, `{box}` and `{boxes}` hold it, `{place}` is where, and `{x}`,
`{y}`, `{z}` are the numbers.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Words:
    """The contents of `stories.json`."""

    women: list[str]
    men: list[str]
    things: list[str]
    colours: list[str]
    boxes: list[tuple[str, str]]
    """One and several: `box`, `boxes`."""
    places: list[str]
    asides: list[str]
    """Sentences with a number `{w}` that the solution does not use."""
    stories: list[tuple[str, str]]
    """Text and calculation."""


WORDS = Words(**json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))
