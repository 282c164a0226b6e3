"""Speed of PPO as a plug-in, compared with the built-in one.

    python -m benchmarks.speed.plugin                 # a table
    python -m benchmarks.speed.plugin --check         # exit with 1 if the plug-in is too slow
    python -m benchmarks.speed.plugin --json FILE     # write the figures and their provenance

Both train the pocket models on the same games; an iteration is play, statistics and updates. The plug-in is
examples/plugins/cory_ppo_again, found by its entry point as an installed package is. Iterations alternate;
seconds are processor time and medians are reported, so that other load on the machine affects both alike.
"""

import argparse
import statistics
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from time import process_time

from benchmarks import ROOT
from benchmarks.output import write_figures
from cory.config.presets import PRESETS
from cory.config.schema import Config
from cory.training.factory import silence_transformers
from cory.training.trainer import Trainer

PLUGIN = ROOT / "examples/plugins/cory_ppo_again"
LEAST = 0.95
"""Target: iterations per second of the plug-in over those of the built-in."""


def install(folder: Path, site: Path) -> None:
    """Put the project in `folder` on the path, with the metadata that an installer would leave in `site`."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(header, encoding="utf-8")
    entries = project["entry-points"]["cory.algorithms"]
    lines = ["[cory.algorithms]", *(f"{name} = {module}" for name, module in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    sys.path[:0] = [str(site), str(folder)]


def make_trainer(name: str, batch: int) -> Trainer:
    """The pocket run with the algorithm `name` at its defaults."""
    config: Config = replace(PRESETS["pocket"].config, algorithm=name, algorithm_options=None, batch=batch)
    return Trainer(config)


def measure(rounds: int, batch: int) -> dict[str, float]:
    """Median seconds of an iteration by algorithm, after a warm-up iteration of each."""
    trainers = {name: make_trainer(name, batch) for name in ("ppo", "ppo_again")}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for iteration in range(rounds + 1):
        for name in list(trainers)[:: 1 if iteration % 2 else -1]:
            start = process_time()
            trainers[name].iterate(iteration)
            seconds[name].append(process_time() - start)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if the plug-in is below {LEAST}")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--rounds", type=int, default=10, help="measured iterations of each")
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
        write_figures(options.json, {"seconds_per_iteration": seconds, "plugin_over_builtin": ratio})
    if options.check and ratio < LEAST:
        print(f"too slow: {ratio:.3f} of the built-in's speed, the target is {LEAST}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
