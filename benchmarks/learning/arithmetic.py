"""CORY beside single-agent PPO where the reward is objective: worked sums, 1 or 0 for the final number.

    python -m benchmarks.learning.arithmetic            # about 20 minutes on 2 cores; started again, it goes on
    python -m benchmarks.learning.arithmetic --sweep    # bolder settings beside the presets': not published
    python -m benchmarks.learning.arithmetic --table    # only the tables of the committed results

Three seeds of the presets pocket-arithmetic and pocket-arithmetic-ppo as they are: the same model, settings,
queries and number of updates per policy; CORY plays twice the games. Each policy answers the held-out
problems alone, 8 times each, before and after. Results go to benchmarks/results/learning/arithmetic_study.json and
arithmetic_sweep.json. The exit code is 1 where some policy's pass@1 does not rise by 10 points.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from benchmarks.learning.runs import RESULTS, ROOT, provenance, train_all
from benchmarks.learning.pocket import ends

SEEDS = (0, 1, 2)
NAMES = {"pocket-arithmetic": "CORY", "pocket-arithmetic-ppo": "single-agent PPO"}
KS = range(1, 9)
BOLD = ("--learner.lr", "1e-4", "--learner.max-grad-norm", "None", "--kl.coef", "0.02")
SWEEP = {
    "CORY": ("--preset", "pocket-arithmetic"),
    "CORY, lr 1e-4, gradients as they are, eta 0.02": ("--preset", "pocket-arithmetic", *BOLD),
    "the same, lambda 0.95": ("--preset", "pocket-arithmetic", *BOLD, "--algorithm.lam", "0.95"),
    "single-agent PPO": ("--preset", "pocket-arithmetic-ppo"),
    "single-agent PPO, lr 1e-4, gradients as they are, eta 0.02": (
        "--preset",
        "pocket-arithmetic-ppo",
        *BOLD,
    ),
}
"""Runs of the sweep and their flags."""

TARGET = 0.10
"""What pass@1 of each policy alone must rise by."""


def columns(figures: dict[str, float]) -> dict[str, str]:
    """Cells of a table by their headings."""
    told = {f"pass@{k}": f"{100 * figures[f'pass_at_{k}']:.0f} %" for k in KS}
    return told | {"KL, nats": f"{figures['kl']:.1f}", "tokens": f"{figures['length']:.1f}"}


def rows_of(runs: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, str]]]:
    """The reference, then the mean over seeds of each policy of each method."""
    told = [("reference", columns(runs[0]["before"]["reference"]))]
    for preset, name in NAMES.items():
        mine = [run["after"] for run in runs if run["preset"] == preset]
        for policy in (policy for policy in mine[0] if policy != "reference"):
            figures = [after[policy] for after in mine]
            mean = {key: statistics.mean(one[key] for one in figures) for key in figures[0]}
            told.append((f"{name}, `{policy}`", columns(mean)))
    return told


def markdown(rows: Sequence[tuple[str, dict[str, str]]]) -> str:
    """A table with the names of the rows in the first column."""
    headings = list(rows[0][1])
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells.values())} |" for name, cells in rows)])


def gains(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By how much pass@1 of each policy alone rose over the model it started from, by run."""
    return {
        f"{NAMES[run['preset']]}, seed {run['seed']}, {policy}": figures["pass_at_1"]
        - run["after"]["reference"]["pass_at_1"]
        for run in runs
        for policy, figures in run["after"].items()
        if policy != "reference"
    }


def study() -> dict[str, Any]:
    """Train what is missing of every preset and seed; the first and last evaluation of each run."""
    runs = {
        ROOT / f"runs/study/{preset}-{seed}": [
            *("--preset", preset, "--seed", str(seed), "--checkpoint-every", "0")
        ]
        for seed in SEEDS
        for preset in NAMES
    }
    train_all(runs)
    told = [
        {
            "preset": folder.name.rsplit("-", 1)[0],
            "seed": int(folder.name.rsplit("-", 1)[1]),
            "seconds": seconds(folder),
            **ends(folder),
        }
        for folder in runs
    ]
    return {**provenance("python -m benchmarks.learning.arithmetic"), "seeds": SEEDS, "runs": told}


def sweep() -> dict[str, Any]:
    """Train what is missing of the sweep, seed 0."""
    runs = {
        ROOT / f"runs/sweep/arithmetic-{i}": [*flags, "--checkpoint-every", "0"]
        for i, flags in enumerate(SWEEP.values())
    }
    train_all(runs)
    points = [
        {"name": name, "flags": flags, **ends(folder)}
        for (name, flags), folder in zip(SWEEP.items(), runs, strict=True)
    ]
    return {**provenance("python -m benchmarks.learning.arithmetic --sweep"), "seed": 0, "points": points}


def seconds(folder: Path) -> float:
    """How long a run took, evaluations included."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return round(sum(v for row in rows for key, v in row.items() if key.startswith("time/")), 1)


def sweep_rows(points: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, str]]]:
    """The reference, then each policy of each point."""
    told = [("reference", columns(points[0]["before"]["reference"]))]
    for point in points:
        learned = {policy: figures for policy, figures in point["after"].items() if policy != "reference"}
        told += [(f"{point['name']}, `{policy}`", columns(figures)) for policy, figures in learned.items()]
    return told


def main() -> int:
    """Train what is missing, write the figures, print the table; 1 where a policy gained too little."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweep", action="store_true", help="the settings sweep instead")
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    options = parser.parse_args()
    path = RESULTS / ("arithmetic_sweep.json" if options.sweep else "arithmetic_study.json")
    if not options.table:
        told = sweep() if options.sweep else study()
        path.write_text(json.dumps(told, indent=1) + "\n")
    told = json.loads(path.read_text())
    if options.sweep:
        print(markdown(sweep_rows(told["points"])))
        return 0
    print(markdown(rows_of(told["runs"])))
    gained = gains(told["runs"])
    print("\n".join(f"{name}: {100 * gain:+.1f} points" for name, gain in gained.items()))
    return 1 if min(gained.values()) < TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
