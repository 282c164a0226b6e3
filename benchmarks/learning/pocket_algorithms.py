"""Every algorithm on the pocket task, one seat, one seed: what the policy, alone, gains over its reference.

    python -m benchmarks.learning.pocket_algorithms              # 2 to 6 minutes each; started again, it goes on
    python -m benchmarks.learning.pocket_algorithms rloo grpo    # only these
    python -m benchmarks.learning.pocket_algorithms --table      # only the table of the committed results

Runs are made one at a time, on one thread, under runs/algorithms. Each is the preset `pocket-ppo` (the same
model, judge, queries, 30 iterations of 128 games) with the flags below. Gains are taken pair by pair on the
held-out queries, with their 95 % bootstrap interval; where one does not lie above 0, the exit code is 1.
Results go to benchmarks/results/learning/pocket_algorithms.json.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from benchmarks.learning.runs import RESULTS, ROOT, provenance, train

from cory.cli.evaluate import Options, judge_again

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
SHOWN = ("task_reward", "probability", "second_judge", "kl")


def measure(name: str) -> dict[str, Any]:
    """Train with one algorithm unless that was done, and judge the policy alone."""
    flags = ["--preset", "pocket-ppo", "--algorithm", name, "--seed", str(SEED), "--checkpoint-every", "0"]
    folder = train(ROOT / f"runs/algorithms/{name}-{SEED}", [*flags, *FLAGS[name]])
    told = judge_again(Options(targets=(str(folder),), game=False))
    return {
        "algorithm": name,
        "flags": FLAGS[name],
        "seed": SEED,
        "queries": told["queries"],
        "figures": {quantity: told["figures"]["llm_1"][quantity] for quantity in SHOWN},
        "gain": {
            quantity: told["gain_over_reference"]["llm_1"][quantity] for quantity in SHOWN if quantity != "kl"
        },
        **provenance(f"python -m benchmarks.learning.pocket_algorithms {name}"),
        "commit": json.loads((folder / "environment.json").read_text())["commit"],
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: what each algorithm gained, and at what distance from the reference."""
    lines = [
        "| algorithm | gain in task reward (95 %) | in P(positive) | KL, nats |",
        "|---|---|---|---|",
    ]
    for told in results:
        gain = told["gain"]["task_reward"]
        lines.append(
            f"| {told['algorithm']} | {gain['gain']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f}) "
            f"| {told['gain']['probability']['gain']:+.2f} | {told['figures']['kl']:.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure what is asked for, keep every result, print the table; 1 where an interval reaches 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FLAGS)}; default: all")
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FLAGS):
        parser.error(f"no settings for {', '.join(sorted(unknown))}; there are {', '.join(FLAGS)}")
    path = RESULTS / "pocket_algorithms.json"
    kept = {told["algorithm"]: told for told in json.loads(path.read_text())} if path.exists() else {}
    if not options.table:
        for name in options.names or FLAGS:
            kept[name] = measure(name)
            path.write_text(json.dumps([kept[n] for n in FLAGS if n in kept], indent=1))
    results = [kept[name] for name in FLAGS if name in kept]
    print(table(results))
    return 1 if any(told["gain"]["task_reward"]["low"] <= 0 for told in results) else 0


if __name__ == "__main__":
    sys.exit(main())
