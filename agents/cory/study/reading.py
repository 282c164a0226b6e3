"""Reading a study file: a `Spec` from its values, checked before anything is trained."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cory.evaluation.records import DEFINING
from cory.runtime.nearest import did_you_mean, did_you_mean_path
from cory.runtime.yaml_files import read_yaml
from cory.study.spec import (
    GAME,
    MAY_DIFFER,
    ON,
    TARGET,
    Comparison,
    Frontier,
    Settings,
    Spec,
    Sweep,
    flattened,
    seeds_of,
    tested_on,
)

DIRECTIONS = ("higher", "lower", "equal")
NAME = re.compile(r"[A-Za-z0-9][\w.+=-]*")
"""Names of studies, arms and tasks, which are names of folders."""
QUICK = ("arms", "seeds", "settings", "tasks")
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
    check_keys(values, _names(Spec), "a study")
    if missing := [name for name in ("name", "question", "arms") if not values.get(name)]:
        raise ValueError(f"a study needs {', '.join(missing)}")
    spec = Spec(
        name=_name(values["name"], "study"),
        question=" ".join(str(values["question"]).split()),
        notes=" ".join(str(values.get("notes") or "").split()),
        preset=str(values.get("preset", "pocket")),
        settings=_mapping(values, "settings"),
        arms=_named_settings(values, "arms", _mapping(values, "tasks")),
        tasks=_named_settings(values, "tasks"),
        cross=_cross(values),
        seeds=seeds_of(values.get("seeds", 5)),
        evaluation=_mapping(values, "evaluation"),
        primary=tuple(
            _make(Comparison, one, "a primary comparison")
            for written in _listed(values.get("primary"), "primary", "comparisons")
            for one in _by_task(written)
        ),
        sweeps={
            _name(name, "sweep"): _sweep(f"sweep {name!r}", one)
            for name, one in _mapping(values, "sweeps").items()
        },
        pools={
            _name(name, "pool"): _listed(one, f"pool {name!r}", "arms")
            for name, one in _mapping(values, "pools").items()
        },
        frontier=_make(Frontier, _mapping(values, "frontier"), "frontier"),
        may_differ=_listed(values.get("may_differ"), "may_differ", "settings"),
        quick=_mapping(values, "quick"),
        out=_path(values, "out") or Path("runs/studies") / str(values["name"]),
        results=_path(values, "results"),
    )
    _check(spec)
    return spec


def check_keys(given: Iterable[str], known: Sequence[str], where: str, what: str = "key") -> None:
    """Raise ValueError for the first key that is not known, with the nearest one."""
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{where} has no {what} {key!r}{hint}")


def _check(spec: Spec) -> None:
    for name in spec.may_differ:
        if str(name).split(".")[0] not in MAY_DIFFER:
            raise ValueError(f"may_differ holds {name!r}; it lists settings of {', '.join(MAY_DIFFER)}")
    check_keys(spec.quick, QUICK, "quick")
    for part, known in (("arms", spec.arms), ("tasks", spec.tasks)):
        listed = _listed(spec.quick.get(part), f"quick: {part}", part)
        check_keys(listed, list(known), f"the study's {part}")
        if part in spec.quick and not listed:
            raise ValueError(f"quick: {part} is empty; name some, or leave it out for all")
    _mapping(spec.quick, "settings")
    if "seeds" in spec.quick:
        seeds_of(spec.quick["seeds"])
    if not _is_number(spec.frontier.kl) or not spec.frontier.kl > 0:
        raise ValueError(f"frontier: kl is {spec.frontier.kl!r}; give a number above 0")
    if spec.frontier.reward is not None and not _is_number(spec.frontier.reward):
        raise ValueError(f"frontier: reward is {spec.frontier.reward!r}; give a number")
    for name, sweep in spec.sweeps.items():
        check_keys(sweep.arms, list(spec.arms), f"sweep {name!r}: the study's arms")
        if name in spec.arms or len(sweep.arms) < 2:
            raise ValueError(f"sweep {name!r} needs two arms or more, and a name that no arm has")
        if not isinstance(sweep.setting, str) or not isinstance(sweep.log, bool):
            raise ValueError(
                f"sweep {name!r} has setting {sweep.setting!r} and log {sweep.log!r}; give the name of a "
                "setting, and true or false"
            )
    for name, pooled in spec.pools.items():
        check_keys(pooled, list(spec.arms), f"pool {name!r}: the study's arms")
        if name in {**spec.arms, **spec.sweeps} or len(set(pooled)) < 2:
            raise ValueError(f"pool {name!r} needs two arms or more, and a name that no arm or sweep has")
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
        margin = one.margin if _is_number(one.margin) else -1
        same = one.arm == one.baseline and one.baseline_metric in ("", one.metric)
        if one.direction not in DIRECTIONS or not margin >= 0 or same:
            raise ValueError(
                f"the comparison of {one.arm} with {one.baseline} has direction {one.direction!r} and margin "
                f"{one.margin!r}; give two arms, one of {', '.join(DIRECTIONS)}, and a margin of 0 or more"
            )


def _check_metric(metric: str, where: str) -> None:
    """Raise ValueError, with the nearest name, for a metric that no run has."""
    metric = str(metric)
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


def _make(kind: Any, values: Any, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} is {values!r:.80}; give `name: value` pairs")
    check_keys(values, _names(kind), where)
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{where} lacks a key ({error})") from error


def _sweep(where: str, written: Any) -> Sweep:
    if isinstance(written, Mapping):
        written = {**written, "arms": _listed(written.get("arms"), where, "arms")}
    sweep: Sweep = _make(Sweep, written, where)
    return sweep


def _listed(value: Any, where: str, what: str) -> tuple[Any, ...]:
    """The items of a list; none without a value. ValueError for anything else."""
    if not isinstance(value, list | tuple | None):
        raise ValueError(f"{where} is {value!r:.80}; give a list of {what}")
    return tuple(value or ())


def _path(values: Mapping[str, Any], key: str) -> Path | None:
    value = values.get(key)
    if not isinstance(value, str | Path | None):
        raise ValueError(f"{key} is {value!r:.80}; give a path")
    return Path(value).expanduser() if value else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _by_task(written: Any) -> list[Any]:
    """A comparison as written, or one per task where its margin is given by task."""
    margins = written.get("margin") if isinstance(written, Mapping) else None
    if not isinstance(margins, Mapping):
        return [written]
    return [{**written, "task": task, "margin": margin} for task, margin in margins.items()]


def _names(kind: Any) -> list[str]:
    return [one.name for one in fields(kind)]


def _mapping(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} is {found!r:.80}; give `name: value` pairs")
    return dict(found)


def _named_settings(values: Mapping[str, Any], key: str, tasks: Collection[str] = ()) -> dict[str, Settings]:
    """Settings by name, flat but for values by task."""
    found: dict[str, Settings] = {}
    for name, settings in _mapping(values, key).items():
        if not isinstance(settings, Mapping | None):
            raise ValueError(f"{key}: {name} is {settings!r:.80}; give settings, or {{}} for none")
        found[_name(name, key)] = flattened(settings or {}, keep=tasks)
        if "seed" in found[str(name)]:
            raise ValueError(f"{key}: {name} sets the seed; the study's `seeds` do")
    return found


def _cross(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found = _mapping(values, "cross")
    for task, others in found.items():
        if not isinstance(others, list | tuple):
            raise ValueError(f"cross: {task} is {others!r:.80}; give a list of tasks")
    return {str(task): tuple(map(str, others)) for task, others in found.items()}


def _name(name: Any, what: str) -> str:
    if not NAME.fullmatch(str(name)):
        raise ValueError(
            f"{what}: the name {name!r} is no name of a folder; begin with a letter or digit and go on with "
            "letters, digits and . _ + = -, as in lambda=-1"
        )
    return str(name)
