"""Average two fitted judges and calibrate the mean.

    python -m examples.pocket_models.average_judges A B --data FILE

Both started as the same blocks of the pocket LM, so a point between them classifies better than either
("model soups", arXiv:2203.05482).
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from tyro.conf import Positional

from cory.judges.classifier import Classifier
from cory.pocket import JUDGE
from examples.pocket_models.calibrate import accuracy, calibration_error, temperature
from examples.pocket_models.corpus import JUDGE_HELD_OUT, game_openings, part


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which judges, in which proportion."""

    first: Positional[Path]
    """Folder written by `examples.pocket_models.fit_judge`."""

    second: Positional[Path]
    """Another, fitted from the same language model."""

    data: Path
    """Parquet file of labelled reviews; only the rows held out from both fits are read."""

    share: float = 0.6
    """Weight of the first."""

    out: Path = JUDGE
    """Folder the mean is written to, in fp16."""


def average(config: Config) -> dict[str, float]:
    """Write the mean, its head divided by the temperature of held-out openings; its metrics on them."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    mean, other = (
        AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        for folder in (config.first, config.second)
    )
    with torch.no_grad():
        for ours, theirs in zip(mean.parameters(), other.parameters(), strict=True):
            ours.lerp_(theirs, 1 - config.share)
    AutoTokenizer.from_pretrained(config.first).save_pretrained(config.out)
    mean.save_pretrained(config.out)
    texts, labels = game_openings(*part(config.data, JUDGE_HELD_OUT), random.Random(0))
    T = temperature(Classifier(config.out)(texts), labels)
    with torch.no_grad():
        mean.score.weight.div_(T)
    mean.half().save_pretrained(config.out)
    scores = Classifier(config.out)(texts)
    return {
        "temperature": T,
        "accuracy": accuracy(scores, labels),
        "error": calibration_error(scores, labels),
    }


if __name__ == "__main__":
    import tyro

    print(json.dumps(average(tyro.cli(Config, description=__doc__))))
