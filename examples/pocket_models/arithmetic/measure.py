"""Measure the arithmetic model: the figures of its card.

    python -m examples.pocket_models.arithmetic.measure

Shapes: Q held-out problems, S responses to each.
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cory.config import presets
from cory.config.task_options import task_options
from cory.evaluation.evaluator import Responses, evaluate_standalone
from cory.pocket import ARITHMETIC_LM, HERE
from cory.runtime.provenance import environment
from cory.training.factory import make_players, silence_transformers
from examples.pocket_models.measure import megabytes

FIGURES = HERE / "arithmetic_figures.json"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Model, number and difficulty of the problems."""

    model: Path = ARITHMETIC_LM

    queries: int = 1024
    """Held-out problems of each difficulty; there are about as many."""

    samples: int = 8
    """Responses to each, at temperature 1."""

    terms: tuple[int, ...] = (2, 3, 4)
    """Numbers of up to two digits in a problem; + and - between them."""

    out: Path = FIGURES
    """File for the figures, with command, commit and machine."""


def respond(config: Config, *, terms: int) -> Responses:
    """The model's responses to held-out problems of `terms` numbers."""
    preset = presets.get("pocket-arithmetic-ppo")
    run = replace(
        preset,
        task_options=task_options("arithmetic")(worked=True, digits=2, terms=terms, signs="+-"),
        policy=replace(preset.policy, model=str(config.model)),
        evaluation=replace(preset.evaluation, queries=config.queries, samples=config.samples),
    )
    task, references, _ = make_players(run)
    return evaluate_standalone(
        references["llm_1"], task, run.evaluation, max_response=run.max_response, measures={}
    )


def figures(responses: Responses) -> dict[str, float]:
    """pass@k, and pass@1 of responses with steps and without; NaN if there are none."""
    metrics = responses.metrics(kl_coef=0.0)
    right_QS = responses.arrays["task_reward"]
    steps_QS = np.array([["=" in text for text in texts] for texts in responses.texts])
    passed = {name.replace("pass_at_", "pass@"): n for name, n in metrics.items() if name.startswith("pass")}
    return passed | {
        "problems": len(responses.queries),
        "tokens": metrics["length"],
        "share with steps": float(steps_QS.mean()),
        "pass@1 with steps": float(right_QS[steps_QS].mean()),
        "pass@1 without": float(right_QS[~steps_QS].mean()),
    }


def main(config: Config) -> dict[str, Any]:
    """Measure, print, write."""
    silence_transformers()
    result = {
        **environment(),
        "command": " ".join(["python -m examples.pocket_models.arithmetic.measure", *sys.argv[1:]]),
        "samples": config.samples,
        "sizes": megabytes(config.model),
        **{f"{terms} numbers": figures(respond(config, terms=terms)) for terms in config.terms},
    }
    print(json.dumps(result, indent=1))
    config.out.write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
