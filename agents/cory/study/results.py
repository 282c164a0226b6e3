"""The results file of a study: its runs and what was counted, as JSON."""

import json
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cory.runtime.files import read_json, write_text
from cory.runtime.provenance import LEARNING_VERSION, environment
from cory.study.plan import Plan, PlannedRun, changes
from cory.study.records import why_another
from cory.study.spec import Spec

SCHEMA = "cory-study/4"

Results = dict[str, Any]


def load(path: Path) -> Results | None:
    """Read a results file, None if there is none; ValueError for one that is damaged or holds no results."""
    if not path.exists():
        return None
    results = read_json(path)
    if (schema := results.get("schema")) != SCHEMA:
        raise ValueError(f"{path} has the schema {schema!r}, not {SCHEMA!r}; it holds no results of a study")
    return results


def save(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results, one run per line; the file changes in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for key, value in results.items():
        if key in ("runs", "statistics", "verdicts") and value:
            lines = ",\n".join(f"  {json.dumps(row)}" for row in value)
            parts.append(f'"{key}": [\n{lines}\n]')
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    write_text(path, "{" + ",\n".join(parts) + "}\n")


def assemble(spec: Spec, plan: Plan, runs: Iterable[Mapping[str, Any]]) -> Results:
    """Results without statistics, made now; ValueError for runs of several learning versions."""
    made = environment()
    program = "cory" if (name := Path(sys.argv[0]).name) == "__main__.py" else name
    kept = sorted(runs, key=lambda run: (run["task"], list(spec.arms).index(run["arm"]), run["seed"]))
    check_one_learning_version(kept)
    return {
        "schema": SCHEMA,
        "study": spec.name,
        "question": spec.question,
        "notes": spec.notes,
        "command": shlex.join([program, *sys.argv[1:]]),
        "commit": made["commit"],
        "machine": {name: made[name] for name in ("processor", "platform", "cpus", "gpu")},
        "versions": {"python": made["python"], **made["versions"]},
        "made": made["started"],
        "learning_version": LEARNING_VERSION,
        "kl_coef": dict(plan.kl_coef),
        "frontier": asdict(spec.frontier),
        "sweeps": {name: asdict(sweep) for name, sweep in spec.sweeps.items()},
        "pools": {name: list(arms) for name, arms in spec.pools.items()},
        "suite": {task: asdict(scale) for task, scale in spec.suite.items()},
        "primary": [asdict(comparison) for comparison in spec.primary],
        "arms": {
            arm: {
                "settings": dict(settings),
                "config": {run.task: _without_seed(run) for run in plan.runs if run.arm == arm},
            }
            for arm, settings in spec.arms.items()
        },
        "runs": kept,
        "statistics": [],
        "verdicts": [],
    }


def stored_runs(path: Path, plan: Plan, *, retrain: Collection[str] | None) -> dict[str, dict[str, Any]]:
    """The runs in a results file by name, also those of other seeds than the plan's.

    ValueError if the file has a run, or an evaluation of its policies on another task, that is not the plan's
    and would be lost, unless it is among those to `retrain`, or there are such and its arm or task is gone.
    """
    stored = load(path) or {"runs": []}
    wanted = {(run.arm, run.task): run for run in plan.runs}
    kept: dict[str, dict[str, Any]] = {}
    for row in stored["runs"]:
        run, why, on = wanted.get((row["arm"], row["task"])), "not in the study", row.get("on", {})
        if run is not None:
            run = replace(run, seed=row["seed"])
            configs = stored["arms"][row["arm"]]["config"]
            why = why_another({**configs[row["task"]], "seed": run.settings["seed"]}, [row], run)
        if run is not None and not why:
            same = {
                task: evaluation
                for task, evaluation in on.items()
                if task in run.cross
                and not changes({**configs[task], "seed": 0}, {**wanted[run.arm, task].settings, "seed": 0})
            }
            kept[run.name] = {**row, "on": same}
            gone = ", ".join(sorted(on.keys() - same))
            why = f"evaluations on {gone} are not the study's" if gone else ""
        if why and (retrain is None or (run is not None and run.name not in retrain)):
            raise ValueError(
                f"{path} holds a run that is not this study's: {row['arm']} on {row['task']}, seed "
                f"{row['seed']} ({why}); --retrain trains such runs again, of the arms, tasks and seeds that "
                "are chosen, and removes those of arms and tasks that are gone. Or restore the study file, "
                "or give the changed arm another name"
            )
    return kept


def _without_seed(run: PlannedRun) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name != "seed"}


def check_one_learning_version(runs: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for runs of several learning versions."""
    if len(versions := sorted({run["learning_version"] for run in runs})) > 1:
        raise ValueError(
            f"these runs have the learning versions {', '.join(map(str, versions))}; one table holds one"
        )
