"""The results file of a study: JSON that accumulates runs and is sealed with a hash."""

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cory.runtime.provenance import environment
from cory.study.plan import Plan, differing
from cory.study.records import LEARNING_VERSION, with_cross_of
from cory.study.spec import Spec
from cory.training.checkpoint import write_text

SCHEMA = "cory-study/3"

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
        "budgets": dict(spec.budgets),
        "frontier": asdict(spec.frontier),
        "sweeps": {name: asdict(sweep) for name, sweep in spec.sweeps.items()},
        "pools": {name: list(arms) for name, arms in spec.pools.items()},
        "ladder": list(spec.ladder),
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
    if results is None or results["learning_version"] != LEARNING_VERSION:
        return {}
    wanted = {(run.arm, run.task): run for run in plan.runs}
    same = set()
    for key, run in wanted.items():
        stored = results["arms"].get(run.arm, {}).get("config", {}).get(run.task)
        if stored is not None and not differing({**stored, "seed": run.seed}, run.settings):
            same.add(key)
    return {
        f"{run['arm']}/{run['task']}/seed-{run['seed']}": with_cross_of(wanted[run["arm"], run["task"]], run)
        for run in results["runs"]
        if run["status"] == "finished"
        and run["learning_version"] == LEARNING_VERSION
        and (run["arm"], run["task"]) in same
    }


def shared(path: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """Finished runs of the plan that stand in the results of other studies in the same folder, by name."""
    wanted = {run.sha256: run for run in plan.runs}
    found = {}
    for other in sorted(path.parent.glob("*.json")):
        stored = load(other) if other != path else None
        for row in stored["runs"] if stored is not None else ():
            run = wanted.get(row["settings_sha256"])
            if run is not None and row["learning_version"] == LEARNING_VERSION:
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
