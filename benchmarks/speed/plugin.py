"""Speed of PPO as a plug-in, beside the built-in one, in one run on one machine.

    python -m benchmarks.speed.plugin                 # a table
    python -m benchmarks.speed.plugin --check         # and exit 1 where the plug-in falls short
    python -m benchmarks.speed.plugin --json FILE     # and the figures with command, commit and machine

Both train the pocket models on the same games; an iteration is play, statistics and updates. The plug-in is
examples/plugins/cory_ppo_again, found by its entry point as an installed package is. Iterations alternate,
first one then the other, turn about; seconds are processor time and medians are told: what else the machine
does falls on both.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from time import process_time

import torch

from cory.training.factory import silence_transformers
from cory.config.schema import Config
from cory.config.presets import PRESETS
from cory.training.trainer import Trainer

PLUGIN = Path(__file__).parents[1] / "examples/plugins/cory_ppo_again"
LEAST = 0.95
"""What is promised: the plug-in's iterations per second over the built-in's."""


def install(folder: Path, site: Path) -> None:
    """Put the project in `folder` on the path with the metadata that an installer would leave in `site`."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (told / "METADATA").write_text(about, encoding="utf-8")
    entries = project["entry-points"]["cory.algorithms"]
    lines = ["[cory.algorithms]", *(f"{name} = {module}" for name, module in entries.items())]
    (told / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    sys.path[:0] = [str(site), str(folder)]


def trainer(name: str, batch: int) -> Trainer:
    """The pocket run with the algorithm called `name`, at its defaults."""
    config: Config = replace(PRESETS["pocket"].config, algorithm=name, algorithm_options=None, batch=batch)
    return Trainer(config)


def measure(rounds: int, batch: int) -> dict[str, float]:
    """Median seconds of an iteration by algorithm; the first iteration of each warms up and is not told."""
    trainers = {name: trainer(name, batch) for name in ("ppo", "ppo_again")}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for iteration in range(rounds + 1):
        for name in list(trainers)[:: 1 if iteration % 2 else -1]:
            start = process_time()
            trainers[name].iterate(iteration)
            seconds[name].append(process_time() - start)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def provenance() -> dict[str, str]:
    """What a published number needs beside it."""
    told = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(told, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help=f"exit 1 where the plug-in is below {LEAST}")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rounds", type=int, default=10, help="iterations of each that are measured")
    parser.add_argument("--batch", type=int, default=16, help="games per iteration")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as site:
        install(PLUGIN, Path(site))
        silence_transformers()
        seconds = measure(options.rounds, options.batch)
    ratio = seconds["ppo"] / seconds["ppo_again"]
    for name, median in seconds.items():
        print(f"{name:<10} {median:8.3f} s per iteration")
    print(f"the plug-in runs at {ratio:.3f} of the built-in's speed")
    if options.json:
        figures = {"seconds_per_iteration": seconds, "plugin_over_builtin": ratio, **provenance()}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if options.check and ratio < LEAST:
        print(f"too slow: {ratio:.3f} of the built-in's speed, {LEAST} is promised", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
