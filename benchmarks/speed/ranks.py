"""Speed of two ranks on two cores, compared with one process that has both: data parallel, and with --shard.

    python -m benchmarks.speed.ranks                  # a table
    python -m benchmarks.speed.ranks --json FILE      # write the figures and their provenance

Contenders take turns; each round starts their processes anew, warms up for one iteration and times two. An
iteration is play, statistics and updates of a preset, without evaluations.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.output import write_figures
from cory.config.presets import PRESETS
from cory.distributed import ranks
from cory.training.factory import configure_runtime, silence_transformers
from cory.training.trainer import Trainer

CONTENDERS: dict[str, dict[str, Any]] = {
    "one process, 1 thread": {"ranks": 1, "threads": 1, "shard": False},
    "one process, 2 threads": {"ranks": 1, "threads": 2, "shard": False},
    "two ranks, 1 thread each": {"ranks": 2, "threads": 1, "shard": False},
    "two ranks, --shard": {"ranks": 2, "threads": 1, "shard": True},
}
"""Processes, threads of each, and whether they share out the weights."""
TIMED = 2


def play(preset: str, *, threads: int, shard: bool, batch: int | None = None) -> list[float]:
    """Seconds of the timed iterations of this rank's run."""
    whole = PRESETS[preset].config
    config = replace(whole, threads=threads, shard=shard, batch=batch or whole.batch)
    configure_runtime(config)
    silence_transformers()
    trainer = Trainer(config)
    seconds = []
    for iteration in range(1 + TIMED):
        ranks.of_all("a round", None)
        start = time.perf_counter()
        trainer.iterate(iteration)
        ranks.of_all("a round", None)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def run(preset: str, contender: dict[str, Any]) -> list[float]:
    """Start the processes of a contender; rank 0's seconds."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(contender["ranks"])]
    job = ["-m", "--", "benchmarks.speed.ranks", "--rank-of", json.dumps([preset, contender])]
    command = [sys.executable, *launcher, *job]
    threads = {"OMP_NUM_THREADS": str(contender["threads"])}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"a process of {contender} failed: {shlex.join(command)}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def measure(preset: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Median seconds of an iteration by contender, and their ratio to one process with all threads."""
    taken: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        for name, contender in CONTENDERS.items():
            taken[name] += run(preset, contender)
        print(f"{preset}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    base = medians["one process, 2 threads"]
    return {
        name: {"seconds": median, "times_as_fast": base / median, "all": taken[name]}
        for name, median in medians.items()
    }


def main() -> int:
    """Measure, print, write; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", default=["pocket", "pocket-arithmetic"], help="presets to time")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all contenders")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        preset, contender = json.loads(options.rank_of)
        del contender["ranks"]
        seconds = play(preset, **contender)
        if ranks.is_first():
            print(json.dumps(seconds))
        return 0
    results = {preset: measure(preset, options.rounds) for preset in options.presets}
    for preset, figures in results.items():
        print(preset)
        for name, row in figures.items():
            print(f"  {name:<26} {row['seconds']:7.2f} s  {row['times_as_fast']:5.2f}")
    if options.json:
        write_figures(options.json, {"presets": results})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
