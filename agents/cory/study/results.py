"""The results file of a study: JSON that accumulates runs and is sealed with a hash."""

import hashlib
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cory.runtime.files import write_text
from cory.runtime.provenance import environment
from cory.study.plan import Plan, PlannedRun, differing
from cory.study.records import LEARNING_VERSION, since_trained, with_cross_of
from cory.study.spec import Spec

SCHEMA = "cory-study/4"

Results = dict[str, Any]


def load(path: Path) -> Results | None:
    """Read a results file, None if there is none; ValueError for one that was changed by hand."""
    if not path.exists():
        return None
    try:
        results: Results = json.loads(path.read_text(encoding="utf-8"))
        schema, seal = results.get("schema"), results.get("sha256")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"the results file {path} cannot be read ({error})") from error
    if schema != SCHEMA:
        raise ValueError(f"{path} has the schema {schema!r}, not {SCHEMA!r}; it holds no results of a study")
    if seal != sealed(results):
        raise ValueError(
            f"{path} was changed after it was written (its sha256 does not fit); restore it, or remove it "
            "and count again with --report"
        )
    return results


def sealed(results: Mapping[str, Any]) -> str:
    """The sha256 of everything in the results but the hash itself."""
    content = {key: value for key, value in results.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def save(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results with their hash, one run per line; the file changes in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {key: value for key, value in results.items() if key != "sha256"}
    parts = []
    for key, value in {**content, "sha256": sealed(content)}.items():
        if key in ("runs", "statistics", "verdicts") and value:
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
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
        "dirty": is_dirty(made["commit"], kept),
        "machine": {name: made[name] for name in ("processor", "platform", "cpus", "gpu")},
        "versions": {"python": made["python"], **made["versions"]},
        "made": made["started"],
        "learning_version": LEARNING_VERSION,
        "kl_coef": dict(plan.kl_coef),
        "evaluation": {task: dict(settings) for task, settings in plan.evaluation.items()},
        "frontier": asdict(spec.frontier),
        "sweeps": {name: asdict(sweep) for name, sweep in spec.sweeps.items()},
        "pools": {name: list(arms) for name, arms in spec.pools.items()},
        "primary": [asdict(one) for one in spec.primary],
        "arms": {arm: _arm(arm, spec, plan) for arm in spec.arms},
        "runs": kept,
        "statistics": [],
        "verdicts": [],
    }


def reusable(results: Mapping[str, Any] | None, plan: Plan) -> dict[str, dict[str, Any]]:
    """Finished runs in stored results that have the plan's settings and today's learning version, by name.

    Seeds that the plan does not have are kept where arm and task still have the same settings.
    """
    if results is None:
        return {}
    wanted, left_out = _by_arm(plan), unplanned(results, plan)
    return {
        f"{run['arm']}/{run['task']}/seed-{run['seed']}": with_cross_of(wanted[run["arm"], run["task"]], run)
        for run in results["runs"]
        if (run["arm"], run["task"]) not in left_out
    }


def unplanned(results: Mapping[str, Any], plan: Plan) -> dict[tuple[str, str], str]:
    """The arms and tasks of stored runs that are not the plan's, and why not."""
    wanted, found = _by_arm(plan), {}
    for arm, task in dict.fromkeys((run["arm"], run["task"]) for run in results["runs"]):
        run, stored = wanted.get((arm, task)), results["arms"].get(arm, {}).get("config", {}).get(task)
        if run is None or stored is None:
            found[arm, task] = "not in the study"
        elif results["learning_version"] != LEARNING_VERSION:
            found[arm, task] = f"learning version {results['learning_version']}, now {LEARNING_VERSION}"
        elif changed := differing({**stored, "seed": run.seed}, run.settings):
            found[arm, task] = "; ".join(changed[:3])
    for one in results["runs"]:
        run = wanted.get((one["arm"], one["task"]))
        why = since_trained(one.get("sources", {}), replace(run, seed=one["seed"])) if run is not None else ""
        if why:
            found.setdefault((one["arm"], one["task"]), why)
    return found


def _lost_evaluations(results: Mapping[str, Any], plan: Plan) -> dict[tuple[str, str], str]:
    """The arms and tasks of stored runs with evaluations of their policies that the plan does not have."""
    wanted, found = _by_arm(plan), {}
    for run in results["runs"]:
        planned = wanted.get((run["arm"], run["task"]))
        if planned is not None and (lost := run.get("on", {}).keys() - with_cross_of(planned, run)["on"]):
            listed = ", ".join(sorted(lost))
            found[run["arm"], run["task"]] = f"evaluations on {listed} are not the study's"
    return found


def check_keeps(path: Path, plan: Plan) -> None:
    """Raise ValueError if the file has runs that it would lose by being counted with the plan."""
    stored = load(path)
    lost = {} if stored is None else _lost_evaluations(stored, plan) | unplanned(stored, plan)
    if stored is None or not lost:
        return
    played = Counter((run["arm"], run["task"]) for run in stored["runs"])
    listed = [f"{arm} on {task} ({played[arm, task]} runs; {why})" for (arm, task), why in lost.items()]
    raise ValueError(
        f"{path} holds runs that are not this study's: {', '.join(listed[:3])}"
        + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
        + "; --retrain trains them again, and removes those of arms and tasks that are gone. Or restore the "
        "study file, or give the changed arm another name"
    )


def _by_arm(plan: Plan) -> dict[tuple[str, str], PlannedRun]:
    return {(run.arm, run.task): run for run in plan.runs}


def shared(path: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Finished runs of the plan that stand in the results of other studies in the same folder, by name.

    `say` receives a line for each other file there that holds no results.
    """
    wanted = {run.sha256: run for run in plan.runs}
    found = {}
    for other in sorted(path.parent.glob("*.json")):
        try:
            stored = (load(other) if other != path else None) or {"runs": []}
        except ValueError as error:
            say(f"warning: {error}; its runs are not used")
            continue
        for row in stored["runs"]:
            run = wanted.get(row["settings_sha256"])
            if run is None or row["learning_version"] != LEARNING_VERSION:
                continue
            config = stored["arms"][row["arm"]]["config"][row["task"]]
            if not differing({**config, "seed": row["seed"]}, run.settings):  # a default may have changed
                found[run.name] = with_cross_of(run, {**row, "arm": run.arm, "task": run.task})
    return found


def check_one_learning_version(runs: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for runs of several learning versions."""
    if len(versions := sorted({run["learning_version"] for run in runs})) > 1:
        raise ValueError(
            f"these runs have the learning versions {', '.join(map(str, versions))}; one table holds one"
        )


def is_dirty(commit: str | None, runs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether this tree, or that of any run or its evaluation on another task, had uncommitted changes."""
    measured = [one for run in runs for one in (run, *run.get("on", {}).values())]
    return any(str(one).endswith("-dirty") for one in [commit, *(one["commit"] for one in measured)])


def check_clean(path: Path, commit: str | None, runs: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError if results for a committed file come from uncommitted code."""
    if is_dirty(commit, ()):
        raise ValueError(
            f"{path} holds results of committed code only, and this tree has changes; commit them, or pass "
            "--allow-dirty to write beside the runs"
        )
    if names := [f"{r['arm']}/{r['task']}/seed-{r['seed']}" for r in runs if is_dirty(None, [r])]:
        raise ValueError(
            f"{path} holds results of committed code only; {', '.join(names[:5])} began with uncommitted "
            "changes. Remove those runs, or pass --allow-dirty to write beside the runs"
        )


def _arm(arm: str, spec: Spec, plan: Plan) -> dict[str, Any]:
    """An arm's settings as written, and all of them by task."""
    return {
        "settings": dict(spec.arms[arm]),
        "config": {run.task: _without_seed(run.settings) for run in plan.runs if run.arm == arm},
    }


def _without_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "seed"}
