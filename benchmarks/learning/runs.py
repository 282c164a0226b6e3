"""Training runs as experiments: one process per core, a finished run is not repeated."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT

RESULTS = ROOT / "benchmarks/results/learning"
COLUMNS = {
    "combined_reward": "combined reward",
    "probability": "P(positive)",
    "second_judge": "second judge",
    "kl": "KL, nats",
    "distinct_2": "distinct-2",
    "reference_perplexity": "perplexity under reference",
    "length": "length",
}


def train(folder: Path, flags: Sequence[str]) -> Path:
    """Run `cory train` with `flags` on one thread into `folder`, unless it is finished; log beside it."""
    if not (folder / "report.html").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cory.cli", "train", *flags, "--threads", "1"]
        log = folder.with_name(f"{folder.name}.log")
        with log.open("w") as out:
            done = subprocess.run(
                [*command, "--run", str(folder), "--overwrite"],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed; see {log}")
    return folder


def train_all(runs: Mapping[Path, Sequence[str]]) -> None:
    """Train every run, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(train, runs.keys(), runs.values()))


def metric_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def evaluation_curves(folder: Path) -> dict[str, dict[str, list[float]]]:
    """The standalone evaluations of a run: policy -> quantity (`iteration` is one of them) -> values."""
    curves: dict[str, dict[str, list[float]]] = {}
    for row in metric_rows(folder):
        evaluated = {key: value for key, value in row.items() if key.startswith("eval/")}
        for policy in sorted({key.split("/")[1] for key in evaluated}):
            curve = curves.setdefault(policy, {})
            curve.setdefault("iteration", []).append(row["iteration"])
            for key, value in evaluated.items():
                if key.split("/")[1] == policy:
                    curve.setdefault(key.split("/")[2], []).append(value)
    return curves


def seconds(folder: Path) -> float:
    """Duration of a run, evaluations included."""
    spent = (value for row in metric_rows(folder) for key, value in row.items() if key.startswith("time/"))
    return round(float(sum(spent)), 1)


def commit_of(folder: Path) -> str | None:
    """The commit a run was made with."""
    commit: str | None = json.loads((folder / "environment.json").read_text())["commit"]
    return commit
