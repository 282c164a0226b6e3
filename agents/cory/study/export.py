"""Results of a study in the layout of marl-eval, for its plots and those of other libraries."""

import json
from pathlib import Path
from typing import Any

from cory.runtime.files import write_text
from cory.study.analysis import curve, metrics_of
from cory.study.results import Results
from cory.study.spec import ON

FILE = "marl_eval.json"
ENVIRONMENT = "cory"
ABSOLUTE = "absolute_metrics"


def write_marl_eval(results: Results, folder: Path) -> Path:
    """Write `marl_eval.json` into a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FILE, json.dumps(marl_eval(results), indent=1))
    return folder / FILE


def marl_eval(results: Results) -> dict[str, Any]:
    """environment -> task -> arm -> run -> step_1, ..., absolute_metrics -> {"step_count": n, "kl": [value]}.

    The raw data of Gorsane et al. 2022 (github.com/instadeepai/marl-eval): a value is the mean over the
    policies of a run, `step_count` the games that were played, `absolute_metrics` the last evaluation.
    marl-eval needs equal runs, steps and metrics of all arms of a task, in lower case: what not all have is
    left out, and so are training metrics and evaluations on other tasks.
    """
    tasks = {task.lower(): _task(results, task) for task in results["kl_coef"]}
    return {ENVIRONMENT: {task: arms for task, arms in tasks.items() if arms}}


def _task(results: Results, task: str) -> dict[str, Any]:
    """Arm -> run -> step -> metrics, as far as all arms with runs have them."""
    runs = {(run["arm"], run["seed"]): run for run in results["runs"] if run["task"] == task}
    arms = [arm for arm in results["arms"] if any(arm == ran for ran, _ in runs)]
    seeds = [seed for seed in sorted({seed for _, seed in runs}) if all((arm, seed) in runs for arm in arms)]
    columns = {
        metric: {
            (arm, seed): curve(runs[arm, seed], metric, kl_coef=results["kl_coef"][task])
            for arm in arms
            for seed in seeds
        }
        for metric in metrics_of(results)
        if not metric.startswith(("game/", ON))
    }
    columns = {metric: curves for metric, curves in columns.items() if curves and all(curves.values())}
    if not columns:
        return {}
    steps = sorted(
        set.intersection(*(set(points) for curves in columns.values() for points in curves.values()))
    )
    return {
        arm: {
            f"seed_{seed}": {
                **{
                    f"step_{i}": {
                        "step_count": step * int(results["arms"][arm]["config"][task]["batch"]),
                        **{metric: [curves[arm, seed][step]] for metric, curves in columns.items()},
                    }
                    for i, step in enumerate(steps, start=1)
                },
                ABSOLUTE: {metric: [curves[arm, seed][steps[-1]]] for metric, curves in columns.items()},
            }
            for seed in seeds
        }
        for arm in arms
    }
