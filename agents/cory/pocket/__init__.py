"""What is embedded: a small LM of movie reviews, two sentiment judges, openings to start from; and a small LM
of worked arithmetic."""

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

ARITHMETIC_LM = HERE / "arithmetic_lm"
"""The language model of sums and word problems that answers some of them right, with its tokenizer."""

MODELS = {"pocket": LM, "pocket-arithmetic": ARITHMETIC_LM}
"""Where the embedded language models lie, by the names that `--policy.model` takes."""


def lm_path(name: str | Path) -> str | Path:
    """The folder of an embedded language model; any other name or folder as it is."""
    return MODELS.get(str(name), name)
