"""Time and memory of an iteration by batch, response length, vocabulary, seats and model size.

One quantity at a time is varied from W1. Run by `throughput.py --scaling`; draws docs/scaling.png.
"""

import statistics
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.speed.processes import Figures, start
from benchmarks.speed.workloads import WORKLOADS, Workload

ROUNDS = 2
BASE = WORKLOADS["W1"]
SWEEPS: dict[str, dict[float, Workload]] = {
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
"""Varied quantity -> its value -> the workload."""


def scale(*, threads: int, device: str) -> dict[str, Figures]:
    """Seconds, tokens/s, and bytes above the imports, of CORY in float32: medians after a warm-up."""
    results: dict[str, Figures] = {}
    for quantity, workloads in SWEEPS.items():
        results[quantity] = {}
        for value, workload in workloads.items():
            process = start("cory fp32", workload, threads=threads, device=device)
            rows = [process.send("go") for _ in range(1 + (ROUNDS if workload.batch < 1024 else 1))][1:]
            process.close()
            results[quantity][str(value)] = figures = {
                "seconds": statistics.median(row["seconds"] for row in rows),
                "tokens_per_second": statistics.median(row["tokens"] / row["seconds"] for row in rows),
                "peak_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
            }
            print(
                f"{quantity} {value:g}: {figures['seconds']:.2f} s, "
                f"{figures['tokens_per_second']:.0f} tok/s, {figures['peak_bytes'] / 2**30:.2f} GiB",
                file=sys.stderr,
                flush=True,
            )
    return results


def draw(results: dict[str, Figures], path: Path) -> None:
    """Plot seconds (top) and memory (bottom), one column per varied quantity."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    size = (3.2 * len(results), 5.5)
    figure, axes = plt.subplots(2, len(results), figsize=size, sharey="row", squeeze=False)
    for i, (quantity, points) in enumerate(results.items()):
        values = [float(value) for value in points]
        rows = ("seconds", "s an iteration", 1.0), ("peak_bytes", "peak, GiB above the imports", 2.0**30)
        for axis, (name, label, unit) in zip(axes[:, i], rows, strict=True):
            axis.plot(
                values, [figures[name] / unit for figures in points.values()], marker="o", color="#2a6f97"
            )
            axis.set(xscale="log", yscale="log", xlabel=quantity)
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
