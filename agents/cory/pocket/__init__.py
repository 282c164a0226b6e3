"""Paths of the embedded assets: three small language models, two sentiment judges, openings of reviews."""

from pathlib import Path

HERE = Path(__file__).parent

LM = HERE / "lm"
"""Language model of movie reviews, with its tokenizer."""

JUDGE = HERE / "judge"
"""Sentiment classifier that scores responses."""

SECOND_JUDGE = HERE / "second_judge"
"""N-gram judge fitted on other movies and never trained against; detects gaming of the first judge."""

OPENINGS = HERE / "openings.json"
"""Openings of reviews sampled from `LM`: `{"train": [[ids], ...], "test": [[ids], ...]}`."""

ARITHMETIC_LM = HERE / "arithmetic_lm"
"""Language model of sums and word problems, which solves some of them, with its tokenizer."""

ARITHMETIC_LLAMA = HERE / "arithmetic_llama"
"""The same of the Llama architecture."""

MODELS = {"pocket": LM, "pocket-arithmetic": ARITHMETIC_LM, "pocket-arithmetic-llama": ARITHMETIC_LLAMA}
"""Folders of the embedded language models, by their names in `--policy.model`."""


def lm_path(name: str | Path) -> str | Path:
    """Return the folder of an embedded language model; any other name or folder unchanged."""
    return MODELS.get(str(name), name)
