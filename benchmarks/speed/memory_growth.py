"""Memory growth over iterations: resident bytes of the default run after each of them.

    python -m benchmarks.speed.memory_growth                 # 40 iterations of `cory train`, no evaluations
    python -m benchmarks.speed.memory_growth --matmul mkl    # with the other library of matrix products
    python -m benchmarks.speed.memory_growth --check         # exit with 1 if the second half needs 10 % more
    python -m benchmarks.speed.memory_growth --json FILE     # write every figure and its provenance

Batches of varying lengths multiply matrices of varying shapes, and a library caches a kernel for each.
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.output import write_figures
from benchmarks.speed.process_memory import resident
from cory.config.schema import Config
from cory.runtime import cpu
from cory.training.factory import silence_transformers
from cory.training.trainer import Trainer

MOST = 1.1
"""Target: peak of all iterations over that of the first half of them."""


def run(iterations: int, matmul: cpu.Matmul) -> list[dict[str, Any]]:
    """A row for each iteration, in this process: bytes now and at most so far, seconds."""
    cpu.configure_runtime(matmul=matmul)
    silence_transformers()
    trainer, rows = Trainer(Config()), []
    for iteration in range(iterations):
        start = perf_counter()
        trainer.iterate(iteration)
        rows.append(
            {
                "seconds": perf_counter() - start,
                "resident_bytes": resident("VmRSS"),
                "peak_bytes": resident("VmHWM"),
            }
        )
        print(f"{iteration:4} {rows[-1]['resident_bytes'] / 1e6:8,.0f} MB", flush=True)
    return rows


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=40, help="4 or more (default: 40)")
    parser.add_argument("--matmul", choices=["auto", "mkl", "onednn"], default="auto")
    parser.add_argument("--check", action="store_true", help="exit with 1 if memory grew")
    parser.add_argument("--json", type=Path, help="file for every figure")
    options = parser.parse_args()
    if options.iterations < 4:
        parser.error(f"{options.iterations} iterations show no growth; give 4 or more")
    rows = run(options.iterations, options.matmul)
    growth = rows[-1]["peak_bytes"] / rows[len(rows) // 2 - 1]["peak_bytes"]
    print(f"peak of all over peak of the first half: {growth:.3f}, target at most {MOST}")
    if options.json:
        write_figures(options.json, {"iterations": rows, "growth": growth})
    return 1 if options.check and growth > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
