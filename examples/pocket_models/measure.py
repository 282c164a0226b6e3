"""The figures of the pocket models: `python -m examples.pocket_models.measure --imdb FOLDER_OF_TEST_PUBLIC`.

Nothing here fits anything; the public test reviews are read by no other script.

Shapes: B reviews, T tokens, V vocabulary.
"""

import json
import math
import platform
import subprocess
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
from examples.pocket_models.calibrate import accuracy, calibration_error
from examples.pocket_models.corpus import first_words, reviews

LENGTHS = {"8 words": 8, "16 words": 16, "40 words": 40, "whole": sys.maxsize}
"""What the judges are asked about: the beginnings of reviews, and all of them."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which models are measured, on what."""

    imdb: Path
    """Folder with test_public.parquet."""

    lm: Path = LM
    judge: Path = JUDGE
    second_judge: Path = SECOND_JUDGE

    every: int = 1
    """Every n-th review only, for a quick look."""

    out: Path = HERE / "figures.json"
    """Where the figures are written, with command, commit and machine."""


@torch.inference_mode()
def bits_per_character(
    folder: Path, texts: Sequence[str], *, tokens: int = 250, batch: int = 32
) -> dict[str, float]:
    """Of the first `tokens` tokens of every review, END in front; characters are code points."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    end, nats, counted, characters = tokenizer.eos_token_id, 0.0, 0, 0
    for start in range(0, len(texts), batch):
        read = tokenizer(
            list(texts[start : start + batch]),
            truncation=True,
            max_length=tokens,
            return_offsets_mapping=True,
        )
        characters += sum(offsets[-1][1] for offsets in read["offset_mapping"] if offsets)
        T = max(map(len, read["input_ids"]))
        ids_BT = torch.tensor([ids + [-100] * (T - len(ids)) for ids in read["input_ids"]])
        before_BT = pad(ids_BT[:, :-1], (1, 0), value=end).clamp(min=0)
        logits_BTV = model(before_BT).logits
        nats += cross_entropy(logits_BTV.flatten(0, 1), ids_BT.flatten(), reduction="sum").item()
        counted += int((ids_BT >= 0).sum())
    return {
        "bits_per_character": nats / math.log(2) / characters,
        "nats_per_token": nats / counted,
        "characters_per_token": characters / counted,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


Judge = Callable[[Sequence[str]], list[float]]


def judged(
    judges: dict[str, Judge], texts: Sequence[str], labels: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Accuracy and calibration error of each of two judges, correlation of their log-odds; by length."""
    found: dict[str, dict[str, float]] = {}
    for length, words in LENGTHS.items():
        begun = [first_words(text, words) for text in texts]
        log_odds = {name: judge(begun) for name, judge in judges.items()}
        for name, scores in log_odds.items():
            figures = {
                "accuracy": accuracy(scores, labels),
                "calibration_error": calibration_error(scores, labels),
            }
            found[f"{name}, {length}"] = figures | {"sd_log_odds": float(np.std(scores))}
        found[f"both, {length}"] = {"correlation": float(np.corrcoef(list(log_odds.values()))[0, 1])}
    return found


def megabytes(folder: Path) -> dict[str, float]:
    """Size on disk in 10^6 bytes: of the weights, and of the whole folder."""
    sizes = {path.name: path.stat().st_size / 1e6 for path in folder.iterdir() if path.is_file()}
    return {"weights_mb": sizes["model.safetensors"], "folder_mb": sum(sizes.values())}


def measure(config: Config) -> dict[str, Any]:
    """Every figure the model cards state."""
    texts, labels = reviews(config.imdb / "test_public.parquet")
    texts, labels = texts[:: config.every], labels[:: config.every]
    folders = {"lm": config.lm, "judge": config.judge, "second_judge": config.second_judge}
    judges: dict[str, Judge] = {
        "judge": Classifier(config.judge),
        "second_judge": NGrams(config.second_judge),
    }
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return {
        "command": f"python -m examples.pocket_models.measure {' '.join(sys.argv[1:])}",
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "reviews": len(texts),
        "lm": bits_per_character(config.lm, texts),
        "sizes": {name: megabytes(folder) for name, folder in folders.items()},
        "judges": judged(judges, texts, labels),
    }


def main(config: Config) -> None:
    """Measure, print, write."""
    told = json.dumps(measure(config), indent=1)
    print(told)
    config.out.write_text(told + "\n")


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
