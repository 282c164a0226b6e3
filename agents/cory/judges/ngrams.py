"""Second judge: a linear model of word n-grams, never trained against."""

import json
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


class NGrams:
    """Log-odds of "positive" from the words and word pairs of a text.

    log_odds = bias + n^(-exponent) * sum of weight[bucket] over the n distinct buckets of the text, where a
    bucket is the crc32 of a word or a pair of words, modulo the number of weights.
    """

    def __init__(self, folder: str | Path) -> None:
        from safetensors.numpy import load_file

        path = Path(folder)
        for name in ("config.json", "model.safetensors"):
            if not (path / name).is_file():
                raise ValueError(
                    f"the n-gram judge {path} has no {name}; make it with "
                    "examples.pocket_models.fit_second_judge"
                )
        config = json.loads((path / "config.json").read_text())
        self.exponent, self.bias = float(config["exponent"]), float(config["bias"])
        self.weights = load_file(path / "model.safetensors")["weights"].astype("float64")

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Return one log-odds per text, in order; a text without words scores the bias."""
        return [self._score(ngram_buckets(text, len(self.weights))) for text in texts]

    def _score(self, buckets: list[int]) -> float:
        scale: float = max(1, len(buckets)) ** -self.exponent
        return self.bias + float(self.weights[buckets].sum()) * scale


WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?]")


def ngram_buckets(text: str, size: int) -> list[int]:
    """Return the distinct buckets in [0, size) of the words and word pairs of `text`, ascending."""
    words = WORD.findall(text.lower())
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return sorted({zlib.crc32(ngram.encode()) % size for ngram in (*words, *pairs)})
