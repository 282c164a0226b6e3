"""Every algorithm on the pocket task, one seat, one seed: the standalone policy's gain over its reference.

    python -m benchmarks.learning.pocket_algorithms              # 2 to 6 minutes each; resumable
    python -m benchmarks.learning.pocket_algorithms rloo grpo    # only these
    python -m benchmarks.learning.pocket_algorithms --table      # only the table of the committed results

Runs are made one at a time, on one thread, under runs/algorithms. Each is the preset `pocket-ppo` (the same
model, judge, queries, 30 iterations of 128 games) with the flags below. Gains are paired by held-out query,
with their 95 % bootstrap interval; the exit code is 1 if one of these reaches 0. Results go to
benchmarks/results/learning/pocket_algorithms.json.
"""

import argparse
import json
import sys
from typing import Any

from benchmarks import ROOT
from benchmarks.learning.runs import RESULTS, commit_of, train
from benchmarks.output import provenance
from cory.cli.evaluate import Options, evaluate
from cory.config import presets

FOUR_STEPS = ["--learner.minibatch", "32"]
"""As many optimiser steps per iteration as PPO takes in its four epochs."""

FLAGS = {
    "ppo": [],
    "a2c": FOUR_STEPS,
    "reinforce": FOUR_STEPS,
    "rloo": FOUR_STEPS,
    "grpo": ["--kl.place", "loss", "--kl.kind", "k3"],
    "trpo": [
        f"--algorithm.{option}" for option in ("max-kl=0.05", "damping=0.3", "cg-steps=5", "fisher-every=4")
    ],
}
SEED = 0
PRESET = "pocket-ppo"
QUANTITIES = ("task_reward", "probability", "second_judge", "kl")


def measure(name: str) -> dict[str, Any]:
    """Train with one algorithm, unless that is done, and evaluate the policy standalone."""
    flags = ["--preset", PRESET, "--algorithm", name, "--seed", str(SEED), "--checkpoint-every", "0"]
    folder = train(ROOT / f"runs/algorithms/{name}-{SEED}", [*flags, *FLAGS[name]])
    evaluation = evaluate(Options(targets=(str(folder),), game=False))
    gains = evaluation["gain_over_reference"]["llm_1"]
    return {
        "algorithm": name,
        "flags": FLAGS[name],
        "seed": SEED,
        "queries": evaluation["queries"],
        "figures": {quantity: evaluation["metrics"]["llm_1"][quantity] for quantity in QUANTITIES},
        "gain": {quantity: gains[quantity] for quantity in QUANTITIES if quantity != "kl"},
        **provenance(),
        "commit": commit_of(folder),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: the gain of each algorithm, and its distance from the reference."""
    lines = [
        "| algorithm | combined reward | gain in task reward (95 %) | in P(positive) | KL, nats |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        gain, figures = result["gain"]["task_reward"], result["figures"]
        combined = figures["task_reward"] - presets.get(PRESET).kl.coef * figures["kl"]
        lines.append(
            f"| {result['algorithm']} | {combined:.2f} "
            f"| {gain['gain']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f}) "
            f"| {result['gain']['probability']['gain']:+.2f} | {figures['kl']:.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure the named algorithms, save every result, print the table; 1 if an interval reaches 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FLAGS)}; default: all")
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FLAGS):
        parser.error(f"no settings for {', '.join(sorted(unknown))}; there are {', '.join(FLAGS)}")
    path = RESULTS / "pocket_algorithms.json"
    saved = {result["algorithm"]: result for result in json.loads(path.read_text())} if path.exists() else {}
    if not options.table:
        for name in options.names or FLAGS:
            saved[name] = measure(name)
            path.write_text(json.dumps([saved[n] for n in FLAGS if n in saved], indent=1))
    results = [saved[name] for name in FLAGS if name in saved]
    print(table(results))
    return 1 if any(result["gain"]["task_reward"]["low"] <= 0 for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
