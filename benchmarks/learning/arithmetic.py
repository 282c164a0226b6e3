"""CORY and single-agent PPO with an objective reward: worked sums, 1 or 0 for the final number.

    python -m benchmarks.learning.arithmetic            # about 20 minutes on 2 cores; resumable
    python -m benchmarks.learning.arithmetic --sweep    # bolder settings too: not published
    python -m benchmarks.learning.arithmetic --table    # only the tables of the committed results

Three seeds of the presets pocket-arithmetic and pocket-arithmetic-ppo unchanged: the same model, settings,
queries and number of updates per policy; CORY plays twice the games. Before and after training, each policy
responds to the held-out problems standalone, 8 times each. Results go to
benchmarks/results/learning/arithmetic_study.json and arithmetic_sweep.json. The exit code is 1 if the pass@1
of some policy does not rise by 10 points.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.learning.runs import RESULTS, first_and_last_evaluation, seconds, train_all
from benchmarks.output import write_figures

SEEDS = (0, 1, 2)
NAMES = {"pocket-arithmetic": "CORY", "pocket-arithmetic-ppo": "single-agent PPO"}
KS = range(1, 9)
BOLD = ("--learner.lr", "1e-4", "--learner.max-grad-norm", "None", "--kl.coef", "0.02")
SWEEP = {
    "CORY": ("--preset", "pocket-arithmetic"),
    "CORY, lr 1e-4, no gradient clipping, eta 0.02": ("--preset", "pocket-arithmetic", *BOLD),
    "the same, lambda 0.95": ("--preset", "pocket-arithmetic", *BOLD, "--algorithm.lam", "0.95"),
    "single-agent PPO": ("--preset", "pocket-arithmetic-ppo"),
    "single-agent PPO, lr 1e-4, no gradient clipping, eta 0.02": (
        "--preset",
        "pocket-arithmetic-ppo",
        *BOLD,
    ),
}
"""Flags of the sweep's runs."""

TARGET = 0.10
"""Required rise of each policy's standalone pass@1."""

Table = list[tuple[str, dict[str, str]]]
"""Rows: a name, and cells by their headings."""


def columns(figures: dict[str, float]) -> dict[str, str]:
    """Cells of a table by their headings."""
    cells = {f"pass@{k}": f"{100 * figures[f'pass_at_{k}']:.0f} %" for k in KS}
    combined = {"combined reward": f"{figures['combined_reward']:.2f}"}
    return combined | cells | {"KL, nats": f"{figures['kl']:.1f}", "tokens": f"{figures['length']:.1f}"}


def rows_of(runs: Sequence[dict[str, Any]]) -> Table:
    """The reference, then the mean over seeds of each policy of each method."""
    rows = [("reference", columns(runs[0]["before"]["reference"]))]
    for preset, name in NAMES.items():
        evaluations = [run["after"] for run in runs if run["preset"] == preset]
        for policy in (policy for policy in evaluations[0] if policy != "reference"):
            figures = [after[policy] for after in evaluations]
            mean = {key: statistics.mean(one[key] for one in figures) for key in figures[0]}
            rows.append((f"{name}, `{policy}`", columns(mean)))
    return rows


def sweep_rows(points: Sequence[dict[str, Any]]) -> Table:
    """The reference, then each policy of each point."""
    rows = [("reference", columns(points[0]["before"]["reference"]))]
    for point in points:
        trained = {policy: figures for policy, figures in point["after"].items() if policy != "reference"}
        rows += [(f"{point['name']}, `{policy}`", columns(figures)) for policy, figures in trained.items()]
    return rows


def markdown(rows: Table) -> str:
    """A table with the names of the rows in the first column."""
    headings = list(rows[0][1])
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells.values())} |" for name, cells in rows)])


def gains(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Rise of each policy's standalone pass@1 over the model it started from, by run."""
    return {
        f"{NAMES[run['preset']]}, seed {run['seed']}, {policy}": figures["pass_at_1"]
        - run["after"]["reference"]["pass_at_1"]
        for run in runs
        for policy, figures in run["after"].items()
        if policy != "reference"
    }


def study() -> dict[str, Any]:
    """Train what is missing of every preset and seed; the first and last evaluation of each run."""
    folders = {ROOT / f"runs/study/{preset}-{seed}": (preset, seed) for seed in SEEDS for preset in NAMES}
    train_all(
        {
            folder: ["--preset", preset, "--seed", str(seed), "--checkpoint-every", "0"]
            for folder, (preset, seed) in folders.items()
        }
    )
    runs = [
        {"preset": preset, "seed": seed, "seconds": seconds(folder), **first_and_last_evaluation(folder)}
        for folder, (preset, seed) in folders.items()
    ]
    return {"seeds": SEEDS, "runs": runs}


def sweep() -> dict[str, Any]:
    """Train what is missing of the sweep, seed 0."""
    runs = {
        ROOT / f"runs/sweep/arithmetic-{i}": [*flags, "--checkpoint-every", "0"]
        for i, flags in enumerate(SWEEP.values())
    }
    train_all(runs)
    points = [
        {"name": name, "flags": flags, **first_and_last_evaluation(folder)}
        for (name, flags), folder in zip(SWEEP.items(), runs, strict=True)
    ]
    return {"seed": 0, "points": points}


def main() -> int:
    """Train what is missing, write the figures, print the table; 1 if a policy gained too little."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweep", action="store_true", help="the settings sweep instead")
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    options = parser.parse_args()
    path = RESULTS / ("arithmetic_sweep.json" if options.sweep else "arithmetic_study.json")
    if not options.table:
        write_figures(path, sweep() if options.sweep else study())
    results = json.loads(path.read_text())
    if options.sweep:
        print(markdown(sweep_rows(results["points"])))
        return 0
    print(markdown(rows_of(results["runs"])))
    gained = gains(results["runs"])
    print("\n".join(f"{name}: {100 * gain:+.1f} points" for name, gain in gained.items()))
    return 1 if min(gained.values()) < TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
