"""The figures of the arithmetic model's card: `python -m examples.pocket_models.arithmetic.measure`.

Shapes: Q held-out problems, S answers to each.
"""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cory.config import presets
from cory.config.task_options import task_options
from cory.evaluation.evaluator import Responses, evaluate_standalone
from cory.pocket import ARITHMETIC_LM
from cory.training.factory import make_players, silence_transformers
from examples.pocket_models.measure import megabytes

FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which model, on how much."""

    model: Path = ARITHMETIC_LM

    queries: int = 1024
    """Held-out problems of each difficulty; there are about as many."""

    samples: int = 8
    """Answers to each, at temperature 1."""

    terms: tuple[int, ...] = (2, 3, 4)
    """Numbers of up to two digits in a problem; + and - between them."""

    out: Path = FIGURES
    """Where the figures are written, with command, commit and machine."""


def answers(config: Config, *, terms: int) -> Responses:
    """What the model says evaluate_standalone."""
    preset = presets.get("pocket-arithmetic-ppo")
    asked = replace(
        preset,
        task_options=task_options("arithmetic")(worked=True, digits=2, terms=terms, signs="+-"),
        policy=replace(preset.policy, model=str(config.model)),
        evaluation=replace(preset.evaluation, queries=config.queries, samples=config.samples),
    )
    task, references, _ = make_players(asked)
    return evaluate_standalone(references["llm_1"], task, asked.evaluation, max_response=asked.max_response, measures={})


def figures(told: Responses) -> dict[str, float]:
    """pass@k, and pass@1 apart for answers with steps and without; a share of nothing is NaN."""
    numbers = told.numbers(kl_coef=0.0, threshold=1.0)
    right_QS = told.arrays["task_reward"]
    steps_QS = np.array([["=" in text for text in texts] for texts in told.texts])
    passed = {name.replace("pass_at_", "pass@"): n for name, n in numbers.items() if name.startswith("pass")}
    return passed | {
        "problems": len(told.queries),
        "tokens": numbers["length"],
        "share with steps": float(steps_QS.mean()),
        "pass@1 with steps": float(right_QS[steps_QS].mean()),
        "pass@1 without": float(right_QS[~steps_QS].mean()),
    }


def main(config: Config) -> dict[str, Any]:
    """Measure, print, write."""
    silence_transformers()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    told = {
        "command": "python -m examples.pocket_models.arithmetic.measure",
        "commit": commit.stdout.strip(),
        "machine": f"torch {torch.__version__}, {torch.get_num_threads()} threads",
        "samples": config.samples,
        "sizes": megabytes(config.model),
        **{f"{terms} numbers": figures(answers(config, terms=terms)) for terms in config.terms},
    }
    print(json.dumps(told, indent=1))
    config.out.write_text(json.dumps(told, indent=1) + "\n")
    return told


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
