"""Reading a study file: a `Spec` from its values, checked before anything is trained."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from cory.evaluation.records import DEFINING
from cory.runtime.yaml_files import read_yaml
from cory.study.spec import (
    GAME,
    MAY_DIFFER,
    ON,
    TARGET,
    Spec,
    flattened,
    seeds_of,
    tested_on,
)
from cory_env.nearest import did_you_mean, did_you_mean_path

DIRECTIONS = ("higher", "lower", "equal")
NAME = re.compile(r"[A-Za-z0-9][\w.+=-]*")
"""Names of studies, arms and tasks, which are names of folders."""
STANDALONE = (
    *("task_reward", "accuracy", "kl", "kl_per_token", "combined_reward", "probability", "second_judge"),
    *("distinct_1", "distinct_2", "repetition", "reference_perplexity", "length", "eos_share"),
)
"""Quantities of standalone evaluations, beside pass_at_k."""
OF_TRAINING = ("game/", "average/", "apart/", ON, "hypervolume", "reward_at_kl/", "survival")
"""Metrics, or their beginnings, that only trained arms have."""


def read_spec(path: Path) -> Spec:
    """Read a study file; ValueError that names the file and what is wrong."""
    if not path.is_file():
        raise ValueError(f"there is no study file {path}{did_you_mean_path(path)}")
    try:
        values = read_yaml(path)
    except ValueError as error:
        raise ValueError(f"the study file {path} cannot be read ({error}); give YAML") from error
    if not isinstance(values, dict):
        raise ValueError(f"the study file {path} does not hold `name: value` lines")
    try:
        return make_spec(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def make_spec(values: Mapping[str, Any]) -> Spec:
    """Check the values of a study file; ValueError for an unknown key names the nearest one."""
    if missing := [name for name in ("name", "question", "arms") if not values.get(name)]:
        check_keys(values, [one.name for one in fields(Spec)], "a study")
        raise ValueError(f"a study needs {', '.join(missing)}")
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(given.get("primary"), list | tuple):
        given["primary"] = [one for written in given["primary"] for one in _by_task(written)]
    given["seeds"] = seeds_of(given.get("seeds", 5))
    if isinstance(quick := given.get("quick"), Mapping) and "seeds" in quick:
        given["quick"] = {**quick, "seeds": seeds_of(quick["seeds"])}
    spec: Spec = typed(Spec, {"out": f"runs/studies/{given['name']}"} | given, "a study")
    spec = replace(
        spec,
        question=" ".join(spec.question.split()),
        notes=" ".join(spec.notes.split()),
        arms={name: flattened(arm, keep=spec.tasks) for name, arm in spec.arms.items()},
        tasks={name: flattened(task) for name, task in spec.tasks.items()},
    )
    _check(spec)
    return spec


def typed(kind: Any, value: Any, where: str) -> Any:
    """`value`, as YAML or Python has it, as the type `kind`: a dataclass, Mapping, tuple or plain type.

    ValueError that begins with `where` if it is none; a mapping or a list without a value is empty.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else typed(inner[0], value, where)
    if is_dataclass(kind) or origin is Mapping:
        if not isinstance(value, Mapping | None):
            raise ValueError(f"{where} is {value!r:.80}; give `name: value` pairs")
        values = {str(name): one for name, one in (value or {}).items()}
        if origin is Mapping:
            return {name: typed(inner[1], one, f"{where}: {name}") for name, one in values.items()}
        kinds = get_type_hints(kind)
        check_keys(values, list(kinds), where)
        place = "" if kind is Spec else f"{where}: "
        try:
            return kind(**{name: typed(kinds[name], one, place + name) for name, one in values.items()})
        except TypeError as error:
            raise ValueError(f"{where} lacks a key ({error})") from error
    if origin is tuple:
        if not isinstance(value, list | tuple | None):
            raise ValueError(f"{where} is {value!r:.80}; give a list")
        return tuple(typed(inner[0], one, where) for one in value or ())
    if kind is float and (type(value) not in (int, float) or not math.isfinite(value)):
        raise ValueError(f"{where} is {value!r}; give a number")
    if kind is bool and not isinstance(value, bool):
        raise ValueError(f"{where} is {value!r}; give true or false")
    if kind is Path and not isinstance(value, str | Path):
        raise ValueError(f"{where} is {value!r:.80}; give a path")
    if kind is str and not isinstance(value, str | int | float):
        raise ValueError(f"{where} is {value!r:.80}; give a name or a text")
    return str(value) if kind is str else Path(value).expanduser() if kind is Path else value


def check_keys(given: Iterable[str], known: Sequence[str], where: str, what: str = "key") -> None:
    """Raise ValueError for the first key that is not known, with the nearest one."""
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{where} has no {what} {key!r}{hint}")


def _check(spec: Spec) -> None:
    for what, names in (
        ("study", [spec.name]), ("arms", spec.arms), ("tasks", spec.tasks), ("sweep", spec.sweeps),
        ("pool", spec.pools),
    ):  # fmt: skip
        for name in names:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"{what}: the name {name!r} is no name of a folder; begin with a letter or digit and go "
                    "on with letters, digits and . _ + = -, as in lambda=-1"
                )
    for name, settings in (*spec.arms.items(), *spec.tasks.items()):
        if "seed" in settings:
            raise ValueError(f"{name} sets the seed; the study's `seeds` do")
    for name in spec.may_differ:
        if name.split(".")[0] not in MAY_DIFFER:
            raise ValueError(f"may_differ holds {name!r}; it lists settings of {', '.join(MAY_DIFFER)}")
    for part, listed, known in (
        ("arms", spec.quick.arms, spec.arms),
        ("tasks", spec.quick.tasks, spec.tasks),
    ):
        check_keys(listed or (), list(known), f"the study's {part}")
        if listed == ():
            raise ValueError(f"quick: {part} is empty; name some, or leave it out for all")
    if not spec.frontier.kl > 0:
        raise ValueError(f"frontier: kl is {spec.frontier.kl!r}; give a number above 0")
    taken = set(spec.arms)
    for name, arms in [*((name, one.arms) for name, one in spec.sweeps.items()), *spec.pools.items()]:
        check_keys(arms, list(spec.arms), f"{name!r}: the study's arms")
        if name in taken or len(set(arms)) < 2:
            raise ValueError(f"{name!r} needs two arms or more, and a name that no arm or sweep has")
        taken.add(name)
    if spec.cross and not spec.tasks:
        raise ValueError("cross names tasks and the study has none; add `tasks`")
    for task, others in spec.cross.items():
        check_keys((task, *others), list(spec.tasks), "cross: the study", "task")
        if task in others:
            raise ValueError(
                f"cross: {task!r} names itself, on which its runs are evaluated anyway; leave it out"
            )
    targets = _checked_targets(spec)
    for one in spec.primary:
        for name in (one.arm, one.baseline):
            if name in targets and one.metric.startswith(OF_TRAINING):
                raise ValueError(
                    f"a primary comparison of {name} by {one.metric}: the arm is evaluated, not trained; "
                    "compare a quantity of the standalone evaluation or of the team"
                )
        check_keys(
            (one.arm, one.baseline),
            [*spec.arms, *spec.sweeps, *spec.pools],
            "a primary comparison: the study",
            "arm",
        )
        for metric in filter(None, (one.metric, one.baseline_metric)):
            _check_metric(metric, "a primary comparison")
            _check_tested_on(metric, one.task, spec)
        if one.task is not None:
            check_keys([one.task], list(spec.tasks), "a primary comparison: the study's tasks")
        same = one.arm == one.baseline and one.baseline_metric in ("", one.metric)
        if one.direction not in DIRECTIONS or not one.margin >= 0 or same:
            raise ValueError(
                f"the comparison of {one.arm} with {one.baseline} has direction {one.direction!r} and margin "
                f"{one.margin!r}; give two arms, one of {', '.join(DIRECTIONS)}, and a margin of 0 or more"
            )


def _check_metric(metric: str, where: str) -> None:
    """Raise ValueError, with the nearest name, for a metric that no run has."""
    if metric == "survival" or re.fullmatch(r"hypervolume|reward_at_kl/\d+(\.\d+)?", metric):
        return
    place, _, rest = metric.rpartition("/")
    if re.fullmatch(r"pass_at_\d+", rest) and place != "game":
        return
    known: tuple[str, ...] = STANDALONE
    if place == "game":
        known = ("collective_reward", *GAME)
    elif place == "team":
        known = ("collective_reward", "best_reward", "payoff", *STANDALONE)
    elif place.startswith("team/"):
        known = (*STANDALONE, "honesty", "belief")
    if rest not in known or not re.fullmatch(r"|average|apart|game|team(/\w+)?|on/[^/]+", place):
        names = [f"{place}/{name}" if place else name for name in known]
        hint = did_you_mean(metric, [*names, "hypervolume", "survival"]) or f"; there are {', '.join(names)}"
        raise ValueError(f"{where}: there is no metric {metric!r}{hint}")


def _check_tested_on(metric: str, task: str | None, spec: Spec) -> None:
    """Raise ValueError for `on/<task>/...` of a task that the runs are not evaluated on."""
    tested, _ = tested_on(metric)
    if tested is None:
        return
    check_keys([tested], [name for others in spec.cross.values() for name in others], "cross", "task")
    trained = [task for task, others in spec.cross.items() if tested in others]
    if task not in trained:
        raise ValueError(
            f"a primary comparison by {metric} has the task {task!r}; give the task that is trained "
            f"on, by `cross` {' or '.join(trained)}"
        )


def _checked_targets(spec: Spec) -> list[str]:
    """The arms that are evaluated only; ValueError for settings of them that change no evaluation."""
    targets = [name for name, arm in spec.arms.items() if TARGET in arm]
    for name in targets:
        for setting in spec.arms[name]:
            known = (TARGET, "preset", *DEFINING)
            if not any(setting == one or setting.startswith(f"{one}.") for one in known):
                raise ValueError(
                    f"arm {name!r} is evaluated, not trained: {setting} changes nothing; leave it out"
                )
    return targets


def _by_task(written: Any) -> list[Any]:
    """A comparison as written, or one per task where its margin is given by task."""
    margins = written.get("margin") if isinstance(written, Mapping) else None
    if not isinstance(margins, Mapping):
        return [written]
    return [{**written, "task": task, "margin": margin} for task, margin in margins.items()]
