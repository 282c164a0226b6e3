"""Throughput of an iteration of CORY, compared with TRL's PPO, a vanilla HF baseline and the machine's peak.

    sh benchmarks/speed/baselines/setup.sh                    # once, for TRL
    python -m benchmarks.speed.throughput                     # all workloads; a table
    python -m benchmarks.speed.throughput W1 W2               # only these workloads
    python -m benchmarks.speed.throughput W3 --check          # exit with 1 if a target is missed
    python -m benchmarks.speed.throughput --json FILE         # write every figure and its provenance
    python -m benchmarks.speed.throughput --device cuda       # the workloads of a GPU

Every worker is a process of its own; workers take turns, an iteration each (on an accelerator one follows
another), and the median of the rounds after a warm-up is reported. Weights (except those of the pocket
models) and queries are random; the judge takes no time. Peaks are of resident memory above that of the
imports, on a GPU of what torch allocates; of CORY they are compared with the estimate
(memory_estimate.py). The share is that of the FLOP lower bound (roofline.py) at the speed of the machine's
fastest matrix product, measured between the rounds.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.speed.processes import (
    TRL,
    W3_PAIRS,
    WORKERS,
    Figures,
    installed,
    start,
    workers_of,
)
from benchmarks.speed.roofline import peak
from benchmarks.speed.workloads import GPU_WORKLOADS, REHEARSALS, WORKLOADS, Workload
from cory.policies.loading import check_device
from cory.runtime import cpu
from cory.runtime.files import write_text
from cory.runtime.provenance import environment

ROUNDS = 5
KNOWN = {**WORKLOADS, **GPU_WORKLOADS, **REHEARSALS}


def measure(
    title: str,
    workload: Workload,
    workers: Sequence[str],
    *,
    threads: int,
    device: str,
    rounds: int = ROUNDS,
) -> Figures:
    """Time the workers, and the machine's fastest product between the rounds.

    On a CPU they take turns. On an accelerator, whose memory does not hold them all, one follows another.
    """
    about: dict[str, Figures] = {}
    replies: dict[str, list[Figures]] = {name: [] for name in workers}
    peaks: dict[str, list[float]] = {WORKERS[name].precision: [] for name in workers}
    for group in [workers] if device == "cpu" else [[name] for name in workers]:
        running = {name: start(name, workload, threads=threads, device=device) for name in group}
        about |= {name: process.about for name, process in running.items()}
        try:
            for i in range(1 + rounds):
                for name, process in running.items():
                    replies[name].append(process.send("go"))
                for dtype in {WORKERS[name].precision for name in group}:
                    peaks[dtype].append(peak(getattr(torch, dtype), device))
                print(f"{title}, {', '.join(group)}: round {i} of {rounds}", file=sys.stderr)
        finally:
            for process in running.values():
                process.close()
    fastest = {dtype: statistics.median(speeds) for dtype, speeds in peaks.items()}
    return {
        "workload": asdict(workload),
        "peak_flops": fastest,
        "workers": {
            name: {**about[name], **summary(rows, peak_flops=fastest[WORKERS[name].precision])}
            for name, (_, *rows) in replies.items()
        },
    }


def summary(rows: Sequence[Figures], *, peak_flops: float) -> Figures:
    """Medians over the rounds; of CORY's rows with the FLOP lower bound and the estimate of memory."""
    seconds = [row["seconds"] for row in rows]
    result: Figures = {
        "seconds": statistics.median(seconds),
        "rounds": seconds,
        "cpu_seconds": statistics.median([row["cpu_seconds"] for row in rows]),
        "phases": {
            phase: statistics.median([row["phases"][phase] for row in rows]) for phase in rows[0]["phases"]
        },
        "peak_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
    }
    for unit in ("tokens", "samples"):
        result[f"{unit}_per_second"] = statistics.median([row[unit] / row["seconds"] for row in rows])
    if "lower_bound_flops" in rows[0]:
        speed = statistics.median([row["lower_bound_flops"] / row["seconds"] for row in rows])
        result["share_of_lower_bound"] = speed / peak_flops
        result["estimated_over_peak"] = rows[0]["estimated_bytes"] / result["peak_bytes"]
    return result


def table(title: str, result: Figures) -> str:
    """The figures of a workload as text."""
    peaks = ", ".join(f"{dtype} {speed / 1e9:.0f}" for dtype, speed in result["peak_flops"].items())
    lines = [f"\n{title}: fastest product, GFLOP/s: {peaks}"]
    for name, figures in result["workers"].items():
        shares = ""
        if "share_of_lower_bound" in figures:
            shares = f"{figures['share_of_lower_bound']:5.2f} of the lower bound"
            shares += f"  {figures['estimated_over_peak']:5.2f} of the peak estimated"
        rate = f"{figures['tokens_per_second']:7.0f} tok/s"
        memory = f"{figures['peak_bytes'] / 2**30:6.2f} GiB"
        lines.append(f"  {name:<26} {figures['seconds']:8.3f} s  {rate:<14} {memory}  {shares}")
        lines += [f"      {phase:<20} {spent * 1e3:9.1f} ms" for phase, spent in figures["phases"].items()]
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", help=f"{', '.join(KNOWN)}; by default all of the device's")
    parser.add_argument("--check", action="store_true", help="exit with 1 if W3 misses a target")
    parser.add_argument("--json", type=Path, help="file for every figure")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads per process")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"measured rounds (default: {ROUNDS})")
    options = parser.parse_args()
    options.workloads = options.workloads or [*(WORKLOADS if options.device == "cpu" else GPU_WORKLOADS)]
    try:
        check_device(options.device)
    except ValueError as error:
        parser.error(str(error))
    if options.check and ("W3" not in options.workloads or options.device != "cpu"):
        parser.error("--check has targets for W3 on a CPU only")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; give 1 or more")
    if unknown := set(options.workloads) - set(KNOWN):
        parser.error(f"there is no workload {sorted(unknown)[0]!r}; there are {', '.join(KNOWN)}")
    return options


def plan(workloads: Sequence[str], device: str) -> list[tuple[str, str, Sequence[str]]]:
    """What is measured: title, workload, workers."""
    planned: list[tuple[str, str, Sequence[str]]] = [
        (name, name, workers_of(name, device)) for name in workloads if name != "W3"
    ]
    if "W3" in workloads:
        pairs = [pair for pair in W3_PAIRS if installed(pair)]
        planned += [(f"W3, {' beside '.join(pair)}", "W3", pair) for pair in pairs]
    return planned


def check(results: Mapping[str, Figures]) -> list[str]:
    """One line per target of W3; those that are missed or not measured begin with SHORT.

    `results` are those of W3's pairs, CORY's worker first.
    """
    ratios: dict[str, float] = {}
    peaks: list[float] = []
    for result in results.values():
        ours, *others = result["workers"].items()
        peaks.append(ours[1]["peak_bytes"] / 1e9)
        ratios |= {name: figures["seconds"] / ours[1]["seconds"] for name, figures in others}
    seats = [ratios.pop(name) for name in TRL if name in ratios]
    grpo = ratios.pop("trl grpo fp32", None)
    return [
        _line("times faster than TRL 1.12's PPO", sum(seats) if len(seats) == 2 else None, least=4),
        _line("times faster than TRL 1.16's GRPO", grpo, least=2),
        *(_line(f"times faster than {name}", ratio, least=1) for name, ratio in ratios.items()),
        _line("peak memory of two policies in GB", max(peaks), most=6.5),
    ]


def _line(name: str, value: float | None, *, least: float = 0.0, most: float = math.inf) -> str:
    """A figure of W3 and its target; None = not measured."""
    if value is None:
        return f"SHORT W3, {name}: not measured; `sh benchmarks/speed/baselines/setup.sh` installs TRL"
    target = f"most {most:g}" if least == 0 else f"least {least:g}"
    return f"{'ok   ' if least <= value <= most else 'SHORT'} W3, {name}: {value:.3g}, target at {target}"


def main() -> int:
    """Measure, print, write, check; the exit code."""
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    cpu.choose_matmul()  # as the workers do; recorded in the figures' provenance
    machine = {"threads": options.threads, "device": options.device}
    results: dict[str, Figures] = {}
    for title, name, workers in plan(options.workloads, options.device):
        results[title] = measure(title, KNOWN[name], workers, rounds=options.rounds, **machine)
        print(table(title, results[title]), flush=True)
        if options.json:
            write_text(options.json, json.dumps({"results": results, **environment()}, indent=1) + "\n")
    of_w3 = {title: result for title, result in results.items() if title.startswith("W3")}
    lines = check(of_w3) if of_w3 else []
    print("\n".join(["", *lines]))
    return 1 if options.check and any(line.startswith("SHORT") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
