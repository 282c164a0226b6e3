"""Throughput of an iteration of CORY, compared with TRL's PPO, a vanilla HF baseline and the machine's peak.

    sh benchmarks/speed/baselines/setup.sh                    # once, for TRL
    python -m benchmarks.speed.throughput                     # all workloads; a table
    python -m benchmarks.speed.throughput W1 W2 sampling      # only these workloads
    python -m benchmarks.speed.throughput --check             # exit with 1 if a target is missed
    python -m benchmarks.speed.throughput --json FILE         # write every figure and its provenance
    python -m benchmarks.speed.throughput --device cuda       # the workloads of a GPU

Every worker is a process of its own; workers take turns, an iteration each, and the median of the rounds
after a warm-up is reported. Weights (except those of the pocket models) and queries are random; the judge
takes no time. Peaks are of resident memory above that of the imports. The share is that of the FLOP lower
bound (roofline.py) at the speed of the machine's fastest matrix product, measured between the rounds.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.output import write_figures
from benchmarks.speed.processes import (
    W3_PAIRS,
    WORKERS,
    Figures,
    Precision,
    installed,
    start,
    workers_of,
)
from benchmarks.speed.roofline import peak
from benchmarks.speed.targets import check
from benchmarks.speed.workloads import GPU_WORKLOADS, REHEARSALS, WORKLOADS, Workload
from cory.policies.loading import check_device
from cory.runtime import cpu

ROUNDS = 5


def measure(
    title: str,
    workload: Workload,
    workers: Sequence[str],
    *,
    threads: int,
    device: str,
    run: str = "iterate",
    rounds: int = ROUNDS,
) -> Figures:
    """Time the workers in turns, and the machine's fastest product between the rounds."""
    running = {name: start(name, workload, threads=threads, device=device, run=run) for name in workers}
    replies: dict[str, list[Figures]] = {name: [] for name in workers}
    precisions: list[Precision] = sorted({WORKERS[name].precision for name in workers})
    peaks: dict[Precision, list[float]] = {precision: [] for precision in precisions}
    try:
        for i in range(1 + rounds):
            for name, process in running.items():
                replies[name].append(process.send("go"))
            for dtype, speeds in peaks.items():
                speeds.append(peak(getattr(torch, dtype), device))
            print(f"{title}: round {i} of {rounds}", file=sys.stderr)
    finally:
        for process in running.values():
            process.close()
    fastest = {dtype: statistics.median(speeds) for dtype, speeds in peaks.items()}
    return {
        "workload": asdict(workload),
        "peak_flops": fastest,
        "workers": {
            name: {**running[name].about, **summary(*rows, peak_flops=fastest[WORKERS[name].precision])}
            for name, rows in replies.items()
        },
    }


def summary(warm_up: Figures, *rows: Figures, peak_flops: float) -> Figures:
    """Medians over the rounds, with shares of the FLOP lower bound where it is known."""
    seconds = [row["seconds"] for row in rows]
    result: Figures = {
        "seconds": statistics.median(seconds),
        "rounds": seconds,
        "cpu_seconds": statistics.median([row["cpu_seconds"] for row in rows]),
        "phases": {
            phase: statistics.median([row["phases"][phase] for row in rows])
            for phase in rows[0].get("phases", {})
        },
        "peak_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
    }
    for unit in ("tokens", "samples"):
        if unit in rows[0]:
            result[f"{unit}_per_second"] = statistics.median([row[unit] / row["seconds"] for row in rows])
    if "lower_bound_flops" in rows[0]:
        speed = statistics.median([row["lower_bound_flops"] / row["seconds"] for row in rows])
        result["share_of_lower_bound"] = speed / peak_flops
    if "moved_bytes" in rows[0]:
        result["moved_bytes"] = max(row["moved_bytes"] for row in rows)
        result["operations_over_lower_bound"] = warm_up["counted_flops"] / warm_up["lower_bound_flops"]
    return result


def table(title: str, result: Figures) -> str:
    """The figures of a workload as text."""
    peaks = ", ".join(f"{dtype} {speed / 1e9:.0f}" for dtype, speed in result["peak_flops"].items())
    lines = [f"\n{title}: fastest product, GFLOP/s: {peaks}"]
    for name, figures in result["workers"].items():
        share = ""
        if "share_of_lower_bound" in figures:
            share = f"{figures['share_of_lower_bound']:5.2f} of the lower bound"
        rate = f"{figures['tokens_per_second']:7.0f} tok/s" if "tokens_per_second" in figures else ""
        memory = f"{figures['peak_bytes'] / 2**30:6.2f} GiB"
        lines.append(f"  {name:<26} {figures['seconds']:8.3f} s  {rate:<14} {memory}  {share}")
        lines += [f"      {phase:<20} {spent * 1e3:9.1f} ms" for phase, spent in figures["phases"].items()]
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*WORKLOADS, *GPU_WORKLOADS, *REHEARSALS, "sampling"]
    parser.add_argument("workloads", nargs="*", help=f"{', '.join(known)}; by default all of the device's")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--json", type=Path, help="file for every figure")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads per process")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"measured rounds (default: {ROUNDS})")
    options = parser.parse_args()
    options.workloads = options.workloads or [
        *(WORKLOADS if options.device == "cpu" else GPU_WORKLOADS),
        "sampling",
    ]
    try:
        check_device(options.device)
    except ValueError as error:
        parser.error(str(error))
    if options.check and options.device != "cpu":
        parser.error("--check has targets for a CPU only")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; give 1 or more")
    if unknown := set(options.workloads) - set(known):
        parser.error(f"there is no workload {sorted(unknown)[0]!r}; there are {', '.join(known)}")
    return options


def plan(options: argparse.Namespace) -> list[tuple[str, Workload, Sequence[str], str]]:
    """What is measured: title, workload, workers, and `iterate` or `sample`."""
    known = {**WORKLOADS, **GPU_WORKLOADS, **REHEARSALS}
    planned: list[tuple[str, Workload, Sequence[str], str]] = [
        (name, known[name], workers_of(name, options.device), "iterate")
        for name in options.workloads
        if name not in ("W3", "sampling")
    ]
    if "W3" in options.workloads:
        pairs = [pair for pair in W3_PAIRS if installed(pair)]
        planned += [(f"W3, {' beside '.join(pair)}", known["W3"], pair, "iterate") for pair in pairs]
    if "sampling" in options.workloads:
        planned += [
            (
                f"sampling {name}",
                replace(WORKLOADS[name], batch=256),
                ("cory fp32", "cory bf16", "hf fp32"),
                "sample",
            )
            for name in ("W1", "W2")
        ]
    return planned


def main() -> int:
    """Measure, print, write, check; the exit code."""
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    cpu.choose_matmul()  # as the workers do; recorded in the figures' provenance
    machine = {"threads": options.threads, "device": options.device}
    results: dict[str, Figures] = {}
    for title, workload, workers, run in plan(options):
        results[title] = measure(title, workload, workers, run=run, rounds=options.rounds, **machine)
        print(table(title, results[title]), flush=True)
        if options.json:
            write_figures(options.json, {"results": results})
    lines = check(results) if options.device == "cpu" else []
    print("\n".join(["", *lines]))
    return 1 if options.check and any(line.startswith("SHORT") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
