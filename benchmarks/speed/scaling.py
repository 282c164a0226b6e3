"""What an iteration costs by batch, response length, vocabulary, seats and model size, one at a time from W1.

Run by `throughput.py --scaling`, which see. Draws docs/scaling.png.
"""

import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed.throughput import contender
from benchmarks.speed.workloads import WORKS, Work

ROUNDS = 2
BASE = WORKS["W1"]
SWEEPS: dict[str, dict[float, Work]] = {
    "batch": {n: replace(BASE, batch=n) for n in (16, 64, 256, 1024)},
    "response length, tokens": {n: replace(BASE, response=n) for n in (4, 10, 32, 64)},
    "vocabulary": {n: replace(BASE, vocab_size=n) for n in (2_000, 8_000, 32_000, 128_000)},
    "seats": {n: replace(BASE, seats=n) for n in (1, 2, 4, 8)},
    "weights of a model, millions": {
        round((12 * layers * width**2 + 50_257 * width) / 1e6, 1): replace(
            BASE, layers=layers, width=width, heads=width // 64
        )
        for layers, width in ((2, 128), (4, 256), (8, 512), (12, 768))
    },
}
"""What is varied -> its value -> the work."""


def scale(given: dict[str, Any]) -> dict[str, Any]:
    """Seconds, tokens/s, and bytes above the imports, of ours in float32: medians after a warm-up."""
    told: dict[str, Any] = {}
    for what, works in SWEEPS.items():
        told[what] = {}
        for value, work in works.items():
            process = contender("ours fp32", work, **given)
            rows = [process.send("go") for _ in range(1 + (ROUNDS if work.batch < 1024 else 1))][1:]
            process.close()
            told[what][value] = {
                "seconds": statistics.median(row["seconds"] for row in rows),
                "tokens_per_second": statistics.median(row["tokens"] / row["seconds"] for row in rows),
                "peak_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
            }
            line = told[what][value]
            print(
                f"{what} {value:g}: {line['seconds']:.2f} s, {line['tokens_per_second']:.0f} tok/s, "
                f"{line['peak_bytes'] / 2**30:.2f} GiB",
                file=sys.stderr,
                flush=True,
            )
    return told


def draw(told: dict[str, Any], path: Path) -> None:
    """Seconds above, memory below, a column for everything that is varied."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    size = (3.2 * len(told), 5.5)
    figure, axes = plt.subplots(2, len(told), figsize=size, sharey="row", squeeze=False)
    for i, (what, points) in enumerate(told.items()):
        values = [float(value) for value in points]
        rows = ("seconds", "s an iteration", 1.0), ("peak_bytes", "peak, GiB above the imports", 2.0**30)
        for axis, (name, label, unit) in zip(axes[:, i], rows, strict=True):
            axis.plot(
                values, [figures[name] / unit for figures in points.values()], marker="o", color="#2a6f97"
            )
            axis.set(xscale="log", yscale="log", xlabel=what)
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
            if i == 0:
                axis.set_ylabel(label)
    for axis in axes[:, 0]:
        axis.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
    figure.suptitle(
        "One iteration of CORY, float32, 2 CPU cores; from W1: batch 64, 2 seats, responses of 10, "
        "V = 50,257, 16 million weights",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
