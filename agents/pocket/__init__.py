"""The embedded default: a small LM of movie reviews, two sentiment judges, openings to start from."""

from pathlib import Path

HERE = Path(__file__).parent

LM = HERE / "lm"
"""The language model both policies start from, with its tokenizer."""

JUDGE = HERE / "judge"
"""The sentiment classifier that scores the games."""

SECOND_JUDGE = HERE / "second_judge"
"""A judge of another kind, fitted on other movies, never trained against: guards against gaming the first."""

OPENINGS = HERE / "openings.json"
"""Queries: `{"train": [[ids], ...], "test": [[ids], ...]}`, sampled from `LM`."""
