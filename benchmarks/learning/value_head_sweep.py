"""Learning rate and clipping of the value head: single-agent PPO on both pocket tasks, two seeds.

    python -m benchmarks.learning.value_head_sweep            # about 25 minutes on 2 cores; resumable
    python -m benchmarks.learning.value_head_sweep --table    # only the table of the committed results

A value head starts at zero and learns at the policy's rate, and a new value may leave the old one by
`value_clip` before its loss stops counting. Each point is a preset with these two settings changed. Choices
are made on the validation split: the table shows its combined reward at the end, and the explained variance
of returns, mean over the last five iterations. Results: benchmarks/results/learning/value_head_sweep.json.
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import ROOT
from benchmarks.learning.runs import RESULTS, metric_rows, train_all
from benchmarks.output import provenance

PRESETS = ("pocket-ppo", "pocket-arithmetic-ppo")
SEEDS = (0, 1)
POINTS = (
    # learner.value-lr (None = that of the policy), algorithm.value-clip
    (None, 0.2),
    (1e-3, 5.0),
    (3e-3, 5.0),
    (3e-3, 0.2),
)
QUICK = ("--evaluation.every", "0", "--evaluation.samples", "2", "--checkpoint-every", "20")


def flags(preset: str, value_lr: float | None, value_clip: float, seed: int) -> list[str]:
    """The flags of one run."""
    words = ["--preset", preset, "--seed", str(seed), "--algorithm.value-clip", str(value_clip), *QUICK]
    return words if value_lr is None else [*words, "--learner.value-lr", str(value_lr)]


def summary(folder: Path) -> dict[str, float]:
    """The last validation metrics of a run, and its explained variance over the last five iterations."""
    rows = metric_rows(folder)
    last = {key: value for row in rows for key, value in row.items() if key.startswith("validation/llm_1/")}
    explained = [value for row in rows for key, value in row.items() if key.endswith("/explained_variance")]
    return {key.split("/")[2]: value for key, value in last.items()} | {
        "explained_variance": mean(explained[-5:]) if explained else 0.0
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: one row per preset and point, means over the seeds."""
    quantities = ("combined_reward", "task_reward", "kl", "explained_variance")
    lines = [f"| preset | value lr | value clip | {' | '.join(quantities)} |", "|---" * 7 + "|"]
    for preset in PRESETS:
        for value_lr, value_clip in POINTS:
            found = [
                run["validation"]
                for run in runs
                if (run["preset"], run["value_lr"], run["value_clip"]) == (preset, value_lr, value_clip)
            ]
            if found:
                cells = " | ".join(f"{mean(one[name] for one in found):.3f}" for name in quantities)
                lines.append(f"| {preset} | {value_lr or 'policy'} | {value_clip} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the committed results")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/value_head_sweep", help="folder of the runs")
    options = parser.parse_args()
    path = RESULTS / "value_head_sweep.json"
    if options.table:
        print(table(json.loads(path.read_text())["runs"]))
        return
    points = [(p, lr, clip, seed) for p in PRESETS for lr, clip in POINTS for seed in SEEDS]
    folders = {
        options.out / f"{preset}-{value_lr or 'policy'}-{value_clip}-{seed}": (
            preset,
            value_lr,
            value_clip,
            seed,
        )
        for preset, value_lr, value_clip, seed in points
    }
    train_all({folder: flags(*point) for folder, point in folders.items()})
    runs = [
        {"preset": preset, "value_lr": lr, "value_clip": clip, "seed": seed, "validation": summary(folder)}
        for folder, (preset, lr, clip, seed) in folders.items()
    ]
    path.write_text(json.dumps({**provenance(), "runs": runs}, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
