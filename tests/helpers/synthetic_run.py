"""Run directories with known metrics, written without any model."""

import json
import math
from pathlib import Path

from cory.tracking.tracker import Tracker

POLICY_METRICS = (
    "policy_loss",
    "value_loss",
    "clip_share",
    "entropy",
    "kl_coef",
    "response_length",
    "eos_share",
)


def write_run(
    run: Path,
    *,
    iterations: int = 60,
    seats: int = 2,
    every: int = 5,
    evaluate: int | None = 10,
    planned: int = 60,
) -> Path:
    """A run in which every policy's reward climbs towards 2; without held-out rows if `evaluate` is None."""
    names = ["pioneer_0", *(f"observer_{seat}" for seat in range(1, seats))]
    with Tracker(run) as tracker:
        for iteration in range(iterations):
            turns = iteration // every if every else 0
            metrics = {"time/sample/seconds": 1.6, "time/judge/seconds": 0.3, "time/update/seconds": 1.9}
            seating = {seat: f"llm_{(place - turns) % seats + 1}" for place, seat in enumerate(names)}
            for place, (seat, policy) in enumerate(seating.items()):
                metrics |= {f"{seat}/{policy}/{q}": x for q, x in _seat_metrics(iteration, place).items()}
            if evaluate is not None and (iteration % evaluate == 0 or iteration == iterations - 1):
                metrics |= _standalone(iteration, seats) | {"time/evaluate/seconds": 4.0}
                tracker.samples(iteration, [_sample(seating, row) for row in range(6)])
            tracker.log(iteration, metrics | {"speed/tokens/per_second": 2000 + 10 * (iteration % 7)})
    (run / "config.yaml").write_text(f"iterations: {planned}\nseats: {seats}\nexchange:\n  every: {every}\n")
    (run / "environment.json").write_text(json.dumps({"commit": "0123abc", "torch": "2.13.0"}, indent=2))
    return run


def _seat_metrics(iteration: int, place: int) -> dict[str, float]:
    wobble = 0.08 * math.sin(7.1 * iteration + place)
    reward = 2 - 1.8 * math.exp(-iteration / 25) + wobble + 0.25 * place
    kl = 6 * (1 - math.exp(-iteration / 30)) + wobble
    other = {q: 0.1 + abs(wobble) for q in POLICY_METRICS}
    return {
        "task_reward": reward,
        "payoff": 2 * reward,
        "kl": kl,
        "combined_reward": reward - 0.3 * kl,
        **other,
    }


def _standalone(iteration: int, seats: int) -> dict[str, float]:
    metrics = {
        "eval/reference/task_reward": 0.2,
        "eval/reference/distinct_2": 0.86,
        "eval/reference/kl": 0.0,
    }
    metrics |= {"eval/reference/probability": 0.52, "eval/reference/second_judge": 0.05}
    for policy in range(1, seats + 1):
        grown = (1 - math.exp(-iteration / 25)) * (1 + 0.05 * policy)
        of = {"task_reward": 0.2 + 1.6 * grown, "kl": 5.5 * grown, "distinct_2": 0.86 - 0.06 * grown}
        of |= {"probability": 0.52 + 0.3 * grown, "second_judge": 0.05 + 0.9 * grown}
        metrics |= {f"eval/llm_{policy}/{q}": x for q, x in of.items()}
    return metrics


def _sample(seating: dict[str, str], row: int) -> dict[str, object]:
    responses = dict.fromkeys(seating, f" a quiet, well made film that stays with you ({row})")
    standalone = dict.fromkeys(["reference", *sorted(seating.values())], " a joy from start to end")
    return {
        "query": "This movie was",
        "reference": " not what I had expected",
        **responses,
        "score": dict.fromkeys(seating, 0.5 * row),
        "eval": standalone,
        "seating": seating,
    }
