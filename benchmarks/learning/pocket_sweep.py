"""The small sweep behind the pocket preset: KL kind, price and learning rate; single policy, one seed.

    python -m benchmarks.learning.pocket_sweep            # about 6 minutes on 2 cores; started again, it goes on
    python -m benchmarks.learning.pocket_sweep --table    # only the table of the committed results

Each point is `cory train --preset pocket-ppo` with three settings changed. The curves of its held-out
evaluations go to benchmarks/results/learning/pocket_sweep.json, the figure of the collapse to collapse.png beside it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from benchmarks.learning.runs import COLUMNS, RESULTS, ROOT, held_out, provenance, train_all

POINTS = [
    # kl.kind, kl.coef, learner.lr
    ("k1", 0.3, 1e-4),
    ("k1", 0.2, 1e-4),
    ("k1", 0.1, 1e-4),
    ("full", 0.1, 1e-4),
]


def table(points: list[dict[str, Any]]) -> str:
    """Markdown, one row per point, its last evaluation; the reference first."""
    rows = [f"| KL | eta | lr | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 3) + "|"]
    first = points[0]["curves"]["reference"]
    rows.append(f"| reference | | | {' | '.join(f'{first[name][0]:.2f}' for name in COLUMNS)} |")
    for point in points:
        cells = " | ".join(f"{point['curves']['llm_1'][name][-1]:.2f}" for name in COLUMNS)
        rows.append(f"| {point['kl.kind']} | {point['kl.coef']} | {point['learner.lr']:.0e} | {cells} |")
    return "\n".join(rows)


def draw_collapse(points: list[dict[str, Any]], path: Path) -> None:
    """What the policy gains, pays and loses with `full` and with `k1` in the reward, at the same price."""
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
    results = RESULTS / "pocket_sweep.json"
    if parser.parse_args().table:
        print(table(json.loads(results.read_text())["points"]))
        return
    runs = {}
    for kind, coef, lr in POINTS:
        settings = {"--kl.kind": kind, "--kl.coef": coef, "--learner.lr": lr}
        settings |= {"--iterations": 40, "--checkpoint-every": 0}
        flags = ["--preset", "pocket-ppo", *(word for pair in settings.items() for word in map(str, pair))]
        runs[ROOT / f"runs/sweep/{kind}-{coef}-{lr}"] = flags
    train_all(runs)
    points = [
        {"kl.kind": kind, "kl.coef": coef, "learner.lr": lr, "curves": held_out(folder)}
        for (kind, coef, lr), folder in zip(POINTS, runs, strict=True)
    ]
    told = {**provenance("python -m benchmarks.learning.pocket_sweep"), "seed": 0, "points": points}
    results.write_text(json.dumps(told, indent=1))
    draw_collapse(points, RESULTS / "collapse.png")
    print(table(points))


if __name__ == "__main__":
    main()
