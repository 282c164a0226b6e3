"""Evaluations that training does not make: of players of another library, and of a run on other tasks."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from cory.config.schema import Config
from cory.runtime.files import write_text
from cory.runtime.provenance import commit, environment
from cory.runtime.signals import Signals
from cory.runtime.sources import sources_of
from cory.study.plan import PlannedRun, make_target
from cory.study.records import CROSS, STRANGERS, cross_evaluations, evaluated_after, finished
from cory.tracking.tracker import METRICS, Tracker
from cory.training.evaluate import target_metrics, team_with_observers_of
from cory.training.factory import configure_runtime
from cory.training.overwriting import is_empty, is_marked, mark
from cory.training.run_directory import write_settings
from cory.training.targets import Target, find


def evaluate(folder: Path, settings: Mapping[str, Any]) -> None:
    """Evaluate the players of `target` once and write settings, environment and metrics into `folder`.

    The metrics stand at every iteration at which a run with these settings is evaluated: a level line beside
    the learning curves of the other arms.
    """
    target = make_target(settings)
    config = target.config
    configure_runtime(config)
    if not is_empty(folder) and not is_marked(folder):
        raise ValueError(f"{folder} is no study's; move it away, or name another --out")
    mark(folder)
    write_settings(settings, folder, environment() | {"sources": sources_of(settings)})
    start = time.perf_counter()
    metrics = target_metrics(target)
    seconds = {"time/evaluate/seconds": time.perf_counter() - start}
    (folder / METRICS).unlink(missing_ok=True)
    every = config.evaluation.every or max(1, config.iterations)
    with Tracker(folder) as tracker:
        for iteration in sorted({*range(0, config.iterations, every), config.iterations}):
            tracker.log(iteration, metrics | (seconds if iteration == 0 else {}))


def evaluate_on_others(folder: Path, run: PlannedRun) -> None:
    """Evaluate a run's exported policies standalone by every entry of `run.cross`, where not done yet."""
    with Signals():
        for name, settings in run.cross.items():
            if name not in cross_evaluations(run, folder):
                target = _trained(folder, run)
                config, of_run = Config.from_flat(settings), target.config
                config = replace(config, iterations=of_run.iterations, exchange=of_run.exchange)
                target = replace(target, config=config)
                configure_runtime(target.config)
                print(f"evaluating {name}", flush=True)
                made = {"settings": dict(settings), "sources": sources_of(settings)}
                _store(folder, name, {**made, "metrics": target_metrics(target)})


def evaluate_with_strangers(folder: Path, run: PlannedRun) -> None:
    """Seat a run's pioneer with the observers of `run.strangers` on held-out queries, where not done yet.

    Means over these teams are written once all of those runs are finished; before, nothing is. Those of more
    seeds stay.
    """
    others = {seed: folder.with_name(f"seed-{seed}") for seed in run.strangers}
    done = set(others) <= set(evaluated_after(folder, STRANGERS).get("seeds", ()))
    if done or not others or not all(finished(other, run) for other in others.values()):
        return
    with Signals():
        target = _trained(folder, run)
        configure_runtime(target.config)
        print(f"playing with the observers of seeds {', '.join(map(str, others))}", flush=True)
        teams = [team_with_observers_of(target, _trained(other, run)) for other in others.values()]
        means = {name: fmean(metrics[name] for metrics in teams) for name in teams[0]}
        _store(folder, STRANGERS, {"seeds": list(others), "metrics": means})


def _trained(folder: Path, run: PlannedRun) -> Target:
    """The policies of a run of this arm, to be seated as after its last iteration, by the arm's own order."""
    exchange = {name: value for name, value in run.settings.items() if name.startswith("exchange.")}
    return find(str(folder), settings=exchange)


def _store(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write an evaluation with the commit that made it."""
    path = folder / CROSS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_text(path, json.dumps({"commit": commit(), **content}, indent=1))
