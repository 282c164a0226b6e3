"""Training runs as experiments: started in the background, two at a time, found again when started twice.

Shared by `pocket_sweep.py` and `pocket_study.py`.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
COLUMNS = {
    "probability": "P(positive)",
    "second_judge": "second judge",
    "kl": "KL, nats",
    "distinct_2": "distinct-2",
    "reference_perplexity": "perplexity under reference",
    "length": "length",
}


def train(folder: Path, flags: Sequence[str]) -> Path:
    """`cory train` with `flags` on one thread into `folder`, unless it is there; output goes beside it."""
    if not (folder / "report.html").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cory.cli.main", "train", *flags, "--threads", "1"]
        log = folder.with_name(f"{folder.name}.log")
        with log.open("w") as out:
            told = subprocess.run(
                [*command, "--run", str(folder), "--overwrite"],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        if told.returncode:
            raise RuntimeError(f"{' '.join(command)} failed; see {log}")
    return folder


def train_all(runs: Mapping[Path, Sequence[str]]) -> None:
    """Every run, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(train, runs.keys(), runs.values()))


def held_out(folder: Path) -> dict[str, dict[str, list[float]]]:
    """The curves of each policy alone: policy -> quantity (`iteration` is one of them) -> values."""
    told: dict[str, dict[str, list[float]]] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        found = {key: value for key, value in row.items() if key.startswith("eval/")}
        for policy in sorted({key.split("/")[1] for key in found}):
            curve = told.setdefault(policy, {})
            curve.setdefault("iteration", []).append(row["iteration"])
            for key, value in found.items():
                if key.split("/")[1] == policy:
                    curve.setdefault(key.split("/")[2], []).append(value)
    return told


def provenance(command: str) -> dict[str, Any]:
    """What a published number needs beside it."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    names = [
        line.split(":")[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")
    ]
    return {
        "command": command,
        "commit": git.stdout.strip(),
        "machine": f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores",
    }
