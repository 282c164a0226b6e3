"""Measure the pocket models: the figures of their cards.

    python -m examples.pocket_models.measure --imdb FOLDER_OF_TEST_PUBLIC

Nothing is fitted here; no other script reads the public test reviews.

Shapes: B reviews, T tokens, V vocabulary.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

from cory.judges.classifier import Classifier
from cory.judges.ngrams import NGrams
from cory.pocket import HERE, JUDGE, LM, SECOND_JUDGE
from cory.runtime.provenance import environment
from examples.pocket_models.calibrate import accuracy, calibration_error
from examples.pocket_models.corpus import first_words, reviews

LENGTHS = {"8 words": 8, "16 words": 16, "40 words": 40, "whole": sys.maxsize}
"""Words of each review that the judges score."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Models and test data."""

    imdb: Path
    """Folder with test_public.parquet."""

    lm: Path = LM
    judge: Path = JUDGE
    second_judge: Path = SECOND_JUDGE

    every: int = 1
    """Every n-th review only, for a quick look."""

    out: Path = HERE / "figures.json"
    """File for the figures, with command, commit and machine."""


@torch.inference_mode()
def bits_per_character(
    folder: Path, texts: Sequence[str], *, tokens: int = 250, batch: int = 32
) -> dict[str, float]:
    """Likelihood of the first `tokens` tokens of every review, after END; characters are code points."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    end, nats, count, characters = tokenizer.eos_token_id, 0.0, 0, 0
    for start in range(0, len(texts), batch):
        encoded = tokenizer(
            list(texts[start : start + batch]),
            truncation=True,
            max_length=tokens,
            return_offsets_mapping=True,
        )
        characters += sum(offsets[-1][1] for offsets in encoded["offset_mapping"] if offsets)
        T = max(map(len, encoded["input_ids"]))
        ids_BT = torch.tensor([ids + [-100] * (T - len(ids)) for ids in encoded["input_ids"]])
        before_BT = pad(ids_BT[:, :-1], (1, 0), value=end).clamp(min=0)
        logits_BTV = model(before_BT).logits
        nats += cross_entropy(logits_BTV.flatten(0, 1), ids_BT.flatten(), reduction="sum").item()
        count += int((ids_BT >= 0).sum())
    return {
        "bits_per_character": nats / math.log(2) / characters,
        "nats_per_token": nats / count,
        "characters_per_token": characters / count,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


Judge = Callable[[Sequence[str]], list[float]]


def measure_judges(
    judges: dict[str, Judge], texts: Sequence[str], labels: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Accuracy and calibration error of two judges, and the correlation of their log-odds, by length."""
    results: dict[str, dict[str, float]] = {}
    for length, words in LENGTHS.items():
        openings = [first_words(text, words) for text in texts]
        log_odds = {name: judge(openings) for name, judge in judges.items()}
        for name, scores in log_odds.items():
            results[f"{name}, {length}"] = {
                "accuracy": accuracy(scores, labels),
                "calibration_error": calibration_error(scores, labels),
                "sd_log_odds": float(np.std(scores)),
            }
        correlation = float(np.corrcoef(list(log_odds.values()))[0, 1])
        results[f"both, {length}"] = {"correlation": correlation}
    return results


def megabytes(folder: Path) -> dict[str, float]:
    """Size on disk in 10^6 bytes of the weights and of the whole folder."""
    sizes = {path.name: path.stat().st_size / 1e6 for path in folder.iterdir() if path.is_file()}
    return {"weights_mb": sizes["model.safetensors"], "folder_mb": sum(sizes.values())}


def measure(config: Config) -> dict[str, Any]:
    """Every figure of the model cards."""
    texts, labels = reviews(config.imdb / "test_public.parquet")
    texts, labels = texts[:: config.every], labels[:: config.every]
    folders = {"lm": config.lm, "judge": config.judge, "second_judge": config.second_judge}
    judges: dict[str, Judge] = {
        "judge": Classifier(config.judge),
        "second_judge": NGrams(config.second_judge),
    }
    return {
        **environment(),
        "command": f"python -m examples.pocket_models.measure {' '.join(sys.argv[1:])}",
        "reviews": len(texts),
        "lm": bits_per_character(config.lm, texts),
        "sizes": {name: megabytes(folder) for name, folder in folders.items()},
        "judges": measure_judges(judges, texts, labels),
    }


def main(config: Config) -> None:
    """Measure, print, write."""
    text = json.dumps(measure(config), indent=1)
    print(text)
    config.out.write_text(text + "\n")


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
