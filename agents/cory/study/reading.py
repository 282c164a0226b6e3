"""Reading a study file: a `Spec` from its values, checked before anything is trained."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from cory.config.values import convert, dotted_once
from cory.runtime.yaml_files import read_mapping
from cory.study import metric
from cory.study.spec import Spec, flattened, seeds_of
from cory_env.nearest import did_you_mean

NAME = re.compile(r"[A-Za-z0-9][\w.+=-]*")
"""Names of studies, arms and tasks, which are names of folders."""


def read_spec(path: Path) -> Spec:
    """Read a study file; ValueError that names the file and what is wrong."""
    values = read_mapping(path, "study file")
    try:
        return make_spec(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def make_spec(values: Mapping[str, Any]) -> Spec:
    """Check the values of a study file; ValueError for an unknown key names the nearest one."""
    check_keys(values, [field.name for field in fields(Spec)], "a study")
    if missing := [name for name in ("name", "question", "arms") if not values.get(name)]:
        raise ValueError(f"a study needs {', '.join(missing)}")
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(given.get("primary"), list | tuple):
        given["primary"] = [comparison for written in given["primary"] for comparison in _by_task(written)]
    given["seeds"] = seeds_of(given.get("seeds", 5))
    spec: Spec = typed(Spec, {"out": f"runs/studies/{given['name']}"} | given, "a study")
    spec = replace(
        spec,
        question=" ".join(spec.question.split()),
        notes=" ".join(spec.notes.split()),
        arms={name: flattened(arm, spec.tasks) for name, arm in spec.arms.items()},
        tasks={name: dotted_once(task) for name, task in spec.tasks.items()},
    )
    check(spec)
    return spec


def typed(kind: Any, value: Any, where: str) -> Any:
    """`value`, as YAML or Python has it, as a dataclass, a mapping, a tuple or what `convert` makes.

    ValueError that begins with `where` if it is none; a mapping or a list without a value is empty.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        items = value if isinstance(value, list | tuple | None) else [value]
        return tuple(typed(inner[0], item, where) for item in items or ())
    if not is_dataclass(kind) and origin is not Mapping:
        return convert(value, kind, where)
    if not isinstance(value, Mapping | None):
        raise ValueError(f"{where} is {value!r:.80}; give `name: value` pairs")
    values = {str(name): item for name, item in (value or {}).items()}
    if origin is Mapping:
        return {name: typed(inner[1], item, f"{where}: {name}") for name, item in values.items()}
    kinds = get_type_hints(kind)
    check_keys(values, list(kinds), where)
    place = "" if kind is Spec else f"{where}: "
    try:
        return kind(**{name: typed(kinds[name], item, place + name) for name, item in values.items()})
    except TypeError as error:
        raise ValueError(f"{where} lacks a key ({error})") from error


def check_keys(given: Iterable[str], known: Sequence[str], where: str, what: str = "key") -> None:
    """Raise ValueError for the first key that is not known, with the nearest one."""
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{where} has no {what} {key!r}{hint}")


def check(spec: Spec) -> None:
    """Raise ValueError for a name, an arm, a task or a metric that cannot be."""
    for name in (spec.name, *spec.arms, *spec.tasks, *spec.sweeps, *spec.pools):
        if not NAME.fullmatch(name):
            raise ValueError(
                f"the name {name!r} is no name of a folder; begin with a letter or digit and go on with "
                "letters, digits and . _ + = -, as in lambda=-1"
            )
    for name, settings in (*spec.arms.items(), *spec.tasks.items()):
        if "seed" in settings:
            raise ValueError(f"{name} sets the seed; the study's `seeds` do")
        for setting, value in settings.items():
            if isinstance(value, Mapping):
                check_keys(value, list(spec.tasks), f"{name!r}: {setting}: the study", "task")
    taken = set(spec.arms)
    for name, arms in [*((name, sweep.arms) for name, sweep in spec.sweeps.items()), *spec.pools.items()]:
        check_keys(arms, list(spec.arms), f"{name!r}: the study's arms")
        if name in taken or len(set(arms)) < 2:
            raise ValueError(f"{name!r} needs two arms or more, and a name that no arm or sweep has")
        taken.add(name)
    for task, others in spec.cross.items():
        check_keys((task, *others), list(spec.tasks), "cross: the study", "task")
    check_keys(spec.strangers, list(spec.arms), "strangers: the study", "arm")
    check_keys(spec.suite, list(spec.tasks), "suite: the study", "task")
    for task, scale in spec.suite.items():
        metric.checked(scale.metric, f"suite: {task}")
        if not math.isfinite(scale.best - scale.reference) or scale.best == scale.reference:
            raise ValueError(
                f"suite: {task} goes from {scale.reference} to {scale.best}; give two different numbers"
            )
    for comparison in spec.primary:
        sides, tasks = (comparison.arm, comparison.baseline), filter(None, (comparison.task,))
        check_keys(sides, list(taken), "a primary comparison: the study", "arm")
        check_keys(tasks, list(spec.tasks), "a primary comparison: the study's tasks")
        for name in filter(None, (comparison.metric, comparison.baseline_metric)):
            metric.checked(name, "a primary comparison")
        same_metric = comparison.baseline_metric in ("", comparison.metric)
        if not comparison.margin >= 0 or (sides[0] == sides[1] and same_metric):
            raise ValueError(
                f"the comparison of {sides[0]} with {sides[1]} has the margin {comparison.margin!r}; give two"
                " arms and a margin of 0 or more"
            )
        expected, direction = comparison.expected, comparison.direction
        if expected and not (direction == "equal" and math.isfinite(expected)):
            raise ValueError(
                f"the comparison of {sides[0]} with {sides[1]} expects {expected}, direction {direction}; "
                "give a finite number and direction: equal"
            )
        if direction == "equal" and not comparison.margin:
            raise ValueError(
                f"{sides[0]} and {sides[1]} are never exactly equal; give the comparison a margin"
            )


def _by_task(written: Any) -> list[Any]:
    """A comparison as written, or one per task where its margin is given by task."""
    margins = written.get("margin") if isinstance(written, Mapping) else None
    if not isinstance(margins, Mapping):
        return [written]
    return [{**written, "task": task, "margin": margin} for task, margin in margins.items()]
