"""Whether memory grows from iteration to iteration: resident bytes of the default run after each of them.

    python -m benchmarks.speed.memory_growth                     # 40 iterations of `cory train`, no evaluations
    python -m benchmarks.speed.memory_growth --matmul mkl        # with the other library of products
    python -m benchmarks.speed.memory_growth --check             # and exit 1 where the second half needs a tenth more
    python -m benchmarks.speed.memory_growth --json FILE         # and every figure with command, commit and cpu

Games of ever other lengths bring products of ever other shapes: what a library remembers of each adds up.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.speed.memory import resident
from benchmarks.learning.runs import provenance

from cory.runtime import cpu
from cory.training.factory import silence_transformers
from cory.config.schema import Config
from cory.training.trainer import Trainer

MOST = 1.1
"""Peak of all iterations over that of the first half of them."""


def run(iterations: int, matmul: cpu.Matmul) -> list[dict[str, Any]]:
    """A row for each iteration, in this process: bytes now and at most so far, seconds."""
    cpu.settle(matmul=matmul)
    silence_transformers()
    trainer, rows = Trainer(Config()), []
    for iteration in range(iterations):
        began = perf_counter()
        trainer.iterate(iteration)
        rows.append(
            {
                "seconds": perf_counter() - began,
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
    parser.add_argument("--check", action="store_true", help="exit 1 where memory grew")
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args()
    if options.iterations < 4:
        parser.error(f"{options.iterations} iterations show no growth; give 4 or more")
    rows = run(options.iterations, options.matmul)
    grown = rows[-1]["peak_bytes"] / rows[len(rows) // 2 - 1]["peak_bytes"]
    print(f"peak of all over peak of the first half: {grown:.3f}, at most {MOST} is promised")
    if options.json:
        about = provenance(shlex.join(["python", *sys.argv]))
        options.json.write_text(
            json.dumps({"iterations": rows, "grown": grown, **about}, indent=1) + "\n", encoding="utf-8"
        )
    return 1 if options.check and grown > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
