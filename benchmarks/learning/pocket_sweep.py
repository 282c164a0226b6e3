"""KL estimator, KL coefficient and learning rate on the pocket task: single-agent PPO, one seed.

    python -m benchmarks.learning.pocket_sweep            # about 6 minutes on 2 cores; resumable
    python -m benchmarks.learning.pocket_sweep --table    # only the table of the committed results

Each point is `cory train --preset pocket-ppo` with three settings changed. The curves of its held-out
evaluations go to benchmarks/results/learning/pocket_sweep.json, the figure of the collapse to collapse.png
beside it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.learning.runs import COLUMNS, RESULTS, evaluation_curves, train_all
from benchmarks.output import provenance

POINTS = [
    # kl.kind, kl.coef, learner.lr
    ("k1", 0.3, 1e-4),
    ("k1", 0.2, 1e-4),
    ("k1", 0.1, 1e-4),
    ("full", 0.1, 1e-4),
]


def table(points: list[dict[str, Any]]) -> str:
    """Markdown: the reference, then one row per point with its last evaluation."""
    rows = [f"| KL | eta | lr | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 3) + "|"]
    first = points[0]["curves"]["reference"]
    rows.append(f"| reference | | | {' | '.join(f'{first[name][0]:.2f}' for name in COLUMNS)} |")
    for point in points:
        cells = " | ".join(f"{point['curves']['llm_1'][name][-1]:.2f}" for name in COLUMNS)
        rows.append(f"| {point['kl.kind']} | {point['kl.coef']} | {point['learner.lr']:.0e} | {cells} |")
    return "\n".join(rows)


def draw_collapse(points: list[dict[str, Any]], path: Path) -> None:
    """Plot score, KL and diversity with `full` and with `k1` KL in the reward, at the same coefficient."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = {
        "probability": "P(positive), held-out",
        "kl": "exact KL to the reference\n(nats per response)",
        "distinct_2": "distinct-2",
    }
    figure, axes = plt.subplots(1, len(shown), figsize=(10, 3), layout="constrained")
    for kind, colour in {"full": "#D55E00", "k1": "#0072B2"}.items():
        point = next(
            p for p in points if p["kl.kind"] == kind and p["kl.coef"] == 0.1 and p["learner.lr"] == 1e-4
        )
        curve = point["curves"]["llm_1"]
        for axis, (name, label) in zip(axes, shown.items(), strict=True):
            axis.plot(
                curve["iteration"], curve[name], color=colour, marker="o", label=f"{kind} in the reward"
            )
            axis.set(xlabel="iteration", ylabel=label)
            axis.set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    figure.suptitle(
        "Single-agent PPO on the pocket task, eta = 0.1: the KL estimator decides whether it collapses"
    )
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train what is missing, write curves and figure, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    path = RESULTS / "pocket_sweep.json"
    if parser.parse_args().table:
        print(table(json.loads(path.read_text())["points"]))
        return
    runs = {}
    for kind, coef, lr in POINTS:
        settings = {"--kl.kind": kind, "--kl.coef": coef, "--learner.lr": lr}
        settings |= {"--iterations": 40, "--checkpoint-every": 0}
        flags = ["--preset", "pocket-ppo", *(word for pair in settings.items() for word in map(str, pair))]
        runs[ROOT / f"runs/sweep/{kind}-{coef}-{lr}"] = flags
    train_all(runs)
    points = [
        {"kl.kind": kind, "kl.coef": coef, "learner.lr": lr, "curves": evaluation_curves(folder)}
        for (kind, coef, lr), folder in zip(POINTS, runs, strict=True)
    ]
    path.write_text(json.dumps({**provenance(), "seed": 0, "points": points}, indent=1))
    draw_collapse(points, RESULTS / "collapse.png")
    print(table(points))


if __name__ == "__main__":
    main()
