"""Paths of models by name: embedded ones with judges and openings, and those in the user's cache."""

from pathlib import Path

from platformdirs import user_cache_path

HERE = Path(__file__).parent

LM = HERE / "lm"
"""Language model of movie reviews, with its tokenizer."""

JUDGE = HERE / "judge"
"""Sentiment classifier that scores responses."""

SECOND_JUDGE = HERE / "second_judge"
"""N-gram judge fitted on other movies and never trained against; detects gaming of the first judge."""

OPENINGS = HERE / "openings.json"
"""Openings of reviews sampled from `LM`: `{"train": [text, ...], "validation": ..., "test": ...}`."""

ARITHMETIC_LM = HERE / "arithmetic_lm"
"""Language model of sums and word problems, which solves some of them, with its tokenizer."""

ARITHMETIC_LLAMA = HERE / "arithmetic_llama"
"""The same of the Llama architecture."""

SMOLLM2_JUDGE = HERE / "smollm2_judge"
"""Sentiment classifier of SmolLM2's size: a linear head on the model `smollm2`, which it needs."""

CACHE = user_cache_path("cory") / "models"
"""Where commands of `MADE_BY` put the models they make; never written by a run."""

MODELS = {
    "pocket": LM,
    "pocket-arithmetic": ARITHMETIC_LM,
    "pocket-arithmetic-llama": ARITHMETIC_LLAMA,
    "smollm2": CACHE / "smollm2",
    "smollm2-original": CACHE / "smollm2-original",
    "smollm2-words": CACHE / "smollm2-words",
}
"""Folders of language models by their names in `--policy.model`."""

MADE_BY = {
    "smollm2": "make smollm2` or `python -m examples.smollm2.fetch",
    "smollm2-original": "python -m examples.smollm2.fetch --hub",
    "smollm2-words": "python -m examples.smollm2.warm_start --data runs/words --until 0.2",
}
"""The command, run in a clone, that makes a model of the cache."""


def lm_path(name: str | Path) -> str | Path:
    """Return the folder of a model of `MODELS`; any other name or folder unchanged.

    ValueError, which names the command, for one of the cache that was not made on this machine.
    """
    path = MODELS.get(str(name), name)
    if str(name) in MADE_BY and not (Path(path) / "config.json").is_file():
        raise ValueError(
            f"the model {name} is not on this machine ({path}); make it once with `{MADE_BY[str(name)]}`, "
            "in a clone of the project"
        )
    return path
