"""The runs of a study: a configuration for every arm, task and seed, made before the first run starts."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cory.config import own_model, parsing
from cory.config.parsing import as_json
from cory.config.schema import Config
from cory.config.values import dotted
from cory.evaluation.records import differing
from cory.runtime.sources import sources_of
from cory.runtime.yaml_files import read_mapping
from cory.study import survival
from cory.study.metric import Metric
from cory.study.spec import MAY_DIFFER, TARGET, Comparison, Settings, Spec, on_task
from cory.training.evaluate import COMPARED
from cory.training.factory import make_measures
from cory.training.targets import Target, load_external
from cory_env import tasks as tasks_of_env
from cory_env.types import seat_names

EQUAL = ("evaluation", *MAY_DIFFER)
"""Settings, or groups of them, on which scores depend: equal for all arms of a task."""

UNEQUAL_SEATS = "unequal numbers of seats, and sums over them say nothing beside each other"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a study."""

    arm: str
    task: str
    seed: int
    settings: Mapping[str, Any]
    """All settings, flat, as config.yaml holds them; with `target` where nothing is trained."""
    cross: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By other task: the settings that the trained policies are evaluated with on it."""
    strangers: tuple[int, ...] = ()
    """The other seeds with whose observers the trained pioneer plays."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the files, folders and modules that the settings name (`cory.runtime.sources`)."""

    @property
    def is_trained(self) -> bool:
        """Whether the run trains policies."""
        return TARGET not in self.settings

    @property
    def iterations(self) -> int:
        """Iterations of the run."""
        return int(self.settings["iterations"])

    @property
    def is_on_cpu(self) -> bool:
        """Whether the settings name the CPU; else the run is on an accelerator where there is one."""
        return self.settings.get("policy.device") == "cpu"

    @property
    def name(self) -> str:
        """Arm, task and seed as the path of the run directory below the study's folder."""
        return f"{self.arm}/{self.task}/seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of a study, and what is common to the arms of a task."""

    runs: tuple[PlannedRun, ...]
    kl_coef: Mapping[str, float]
    """By task: the coefficient of the combined reward in tables, that of the base settings."""


def make_plan(spec: Spec) -> Plan:
    """Build every configuration; ValueError for one that cannot be built or is evaluated differently."""
    tasks = spec.tasks or {_config(spec, {}, {}, "the base settings").task: {}}
    runs, kl_coef = [], {}
    by_task: dict[str, dict[str, Config]] = {}
    for task, task_settings in tasks.items():
        base = _config(spec, task_settings, {}, f"task {task!r}")
        if task in tasks_of_env.names() and task != base.task and "task" not in task_settings:
            raise ValueError(f"task {task!r} has the settings of {base.task!r}; give it task: {task}")
        kl_coef[task] = base.kl.coef
        by_task[task] = configs = {
            arm: _config(spec, task_settings, on_task(settings, task), f"arm {arm!r} on task {task!r}")
            for arm, settings in spec.arms.items()
        }
        _check_equal_evaluation({arm: as_json(config) for arm, config in configs.items()}, spec, task)
        for name, sweep in spec.sweeps.items():
            along = [setting_value(as_json(configs[arm]), sweep.setting, log=sweep.log) for arm in sweep.arms]
            if len(set(along)) < len(along):
                raise ValueError(
                    f"sweep {name!r}: {sweep.setting} is {along} in {', '.join(sweep.arms)} on task "
                    f"{task!r}; each arm needs a value of its own"
                )
    _check_measured(spec, by_task)
    _check_strangers(spec, by_task)
    for task, configs in by_task.items():
        cross = {arm: _cross(spec, by_task, task, arm) for arm in configs}
        targets = {arm: target_of(spec.arms[arm]) for arm in configs}
        sources = {arm: sources_of(as_json(config) | targets[arm]) for arm, config in configs.items()}
        runs += [
            PlannedRun(
                arm=arm,
                task=task,
                seed=seed,
                settings=as_json(replace(config, seed=seed)) | targets[arm],
                cross=cross[arm],
                strangers=tuple(other for other in spec.seeds if other != seed and arm in spec.strangers),
                sources=sources[arm],
            )
            for seed in spec.seeds
            for arm, config in configs.items()
        ]
    return Plan(runs=tuple(runs), kl_coef=kl_coef)


def graded(spec: Spec, tasks: Collection[str]) -> set[tuple[str, str]]:
    """Arms and tasks that are compared by how many responses are right, which something must tell."""
    sides = (side for comparison in spec.primary for side in _sides(comparison, spec, tasks))
    scaled = (
        (Metric.named(scale.metric), arm, task) for task, scale in spec.suite.items() for arm in spec.arms
    )
    return {
        (arm, metric.of if metric.place == "on" else task)
        for metric, arm, task in (*sides, *scaled)
        if metric.is_of_right
    }


def _sides(comparison: Comparison, spec: Spec, tasks: Collection[str]) -> Iterator[tuple[Metric, str, str]]:
    """The metric, arm and task of all runs that a comparison is of."""
    metrics = (comparison.metric, comparison.baseline_metric or comparison.metric)
    for name, metric in zip((comparison.arm, comparison.baseline), map(Metric.named, metrics), strict=True):
        arms = spec.sweeps[name].arms if name in spec.sweeps else spec.pools.get(name, (name,))
        for task in [comparison.task] if comparison.task else tasks:
            yield from ((metric, arm, task) for arm in arms)


def _check_measured(spec: Spec, configs: Mapping[str, Mapping[str, Config]]) -> None:
    """Raise ValueError for a comparison by a metric that the evaluations of an arm will not have."""
    for comparison in spec.primary:
        of_sums: dict[str, set[int]] = {}
        for metric, arm, task in _sides(comparison, spec, configs):
            if needed := _unmeasured(metric, spec, arm, task, configs):
                raise ValueError(
                    f"a primary comparison by {metric.name}: arm {arm!r} on task {task!r} needs {needed}"
                )
            if metric.is_sum_of_seats:
                of_sums.setdefault(task, set()).add(configs[task][arm].seats)
        if any(len(seats) > 1 for seats in of_sums.values()):
            raise ValueError(
                f"a primary comparison by {comparison.metric}: {comparison.arm} and {comparison.baseline} "
                f"have {UNEQUAL_SEATS}"
            )
    for task, scale in spec.suite.items():
        metric = Metric.named(scale.metric)
        for arm in spec.arms:
            if needed := _unmeasured(metric, spec, arm, task, configs):
                raise ValueError(f"suite: {scale.metric} of arm {arm!r} on task {task!r} needs {needed}")
        if metric.is_sum_of_seats and len({config.seats for config in configs[task].values()}) > 1:
            raise ValueError(f"suite: {scale.metric}: the arms on task {task!r} have {UNEQUAL_SEATS}")


def _check_strangers(spec: Spec, configs: Mapping[str, Mapping[str, Config]]) -> None:
    """Raise ValueError unless teams that play with strangers are trained, have seats and play themselves."""
    for task, of_task in configs.items():
        for arm in spec.strangers:
            config = of_task[arm]
            played = config.seats > 1 and config.evaluation.team and not config.export_best
            if not played or TARGET in spec.arms[arm]:
                raise ValueError(
                    f"strangers: arm {arm!r} on task {task!r} needs training, two seats or more, "
                    "evaluation.team, and the policies of the last iteration (no export_best)"
                )


def _unmeasured(
    metric: Metric, spec: Spec, arm: str, task: str, configs: Mapping[str, Mapping[str, Config]]
) -> str | None:
    """What a run needs for the metric; None if it will be measured."""
    if TARGET in spec.arms[arm] and metric.is_of_training:
        return "training: it is evaluated only"
    if metric.place == "on" and metric.of not in spec.cross.get(task, ()):
        return f"{metric.of!r} in `cross`"
    config, measured = configs[task][arm], configs[metric.of if metric.place == "on" else task][arm]
    if metric.samples > measured.evaluation.samples:
        return f"evaluation.samples of {metric.samples} or more"
    if metric.is_of_strangers and arm not in spec.strangers:
        return f"{arm!r} in `strangers`"
    if metric.place == "team" and not config.evaluation.team:
        return "evaluation.team"
    if metric.seat and metric.seat not in (names := seat_names(config.seats)):
        return f"the seat {metric.seat!r}, not only {', '.join(names)}"
    if metric.quantity in ("second_judge", "probability") and metric.quantity not in make_measures(measured):
        return "the task reviews" + (", judged by a classifier" if metric.quantity == "probability" else "")
    if metric.quantity in survival.METRICS and not 0 < config.evaluation.every < config.iterations:
        return (
            f"evaluation.every below its {config.iterations} iterations: survival is seen at evaluations only"
        )
    if metric.place == "apart" and len(set(config.policy_names)) < 2:
        return "two policies or more"
    if metric.place == "average" and not config.averages:
        return "evaluation.average of two policies or more, or learner.ema"
    return None


def target_of(settings: Settings) -> dict[str, str]:
    """The `target` of an arm that is evaluated only; empty for one that is trained."""
    return {TARGET: str(settings[TARGET])} if TARGET in settings else {}


def make_target(settings: Mapping[str, Any]) -> Target:
    """Load the players of a run that is evaluated only; ValueError if there are none."""
    trained = {name: value for name, value in settings.items() if name != TARGET}
    return load_external(str(settings[TARGET]), Config.from_flat(trained))


def setting_value(settings: Mapping[str, Any], name: str, *, log: bool = False) -> float:
    """A setting of an arm as a number; payoffs as lambda. ValueError for what is none."""
    value = settings.get(name)
    try:
        if isinstance(value, str) and value.startswith("["):
            number = _weight_of_one_seat(value)
        else:
            others = max(1, int(settings.get("seats", 2)) - 1)
            named = {"cooperative": 1.0, "independent": 0.0, "competitive": -1.0 / others}
            number = named[value] if isinstance(value, str) and value in named else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (log and number <= 0):
        kind = "a number above 0" if log else "a number"
        raise ValueError(f"a sweep over {name!r} needs {kind} in every arm, not {value!r}")
    return number


def payoff_weight(settings: Mapping[str, Any]) -> float | None:
    """The weight λ of the others' scores in an arm's payoff; None for a payoff that has no such number."""
    try:
        return setting_value(settings, "payoff")
    except ValueError:
        return None


def _weight_of_one_seat(matrix: str) -> float:
    """The lambda of a payoff that pays one of two seats own + lambda * other; ValueError for others."""
    match json.loads(matrix):
        case [[1, weight], [0, 1]] | [[1, 0], [weight, 1]]:
            return float(weight)
    raise ValueError(f"payoff {matrix} has more than one weight")


def completed(settings: Settings) -> dict[str, Any]:
    """Stored settings of an arm with those that have been added since (`cory.config.parsing.completed`)."""
    target = target_of(settings)
    return parsing.completed({k: v for k, v in settings.items() if k not in target}) | target


def settings_in(folder: Path) -> dict[str, Any] | None:
    """The settings of the run in a directory, None if there is none."""
    path = folder / "config.yaml"
    if not path.exists():
        return None
    try:
        return read_mapping(path, "settings file")
    except ValueError as error:
        raise ValueError(f"{error}, or move {folder} away") from error


def changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The settings that differ, in words; empty for the same run."""
    if dict(stored) == dict(wanted):
        return []
    return parsing.changes(completed(stored), wanted)


def _config(spec: Spec, task: Settings, arm: Settings, where: str) -> Config:
    """One configuration: the preset, changed by base settings, task, evaluation and arm, in this order."""
    merged: dict[str, Any] = {"preset": spec.preset, "threads": 1}
    for part in (spec.settings, {"evaluation": spec.evaluation}, task, arm):
        if isinstance(part.get("sees"), str):  # for all seats
            merged = {name: value for name, value in merged.items() if not name.startswith("sees.")}
        merged |= dotted(part)
    try:
        merged.pop(TARGET, None)
        default = own_model.start(str(merged.pop("preset")), merged)
        return Config.from_flat(merged, default)
    except ValueError as error:
        raise ValueError(f"{where} cannot be built: {error}") from error


def _cross(
    spec: Spec, configs: Mapping[str, Mapping[str, Config]], task: str, arm: str
) -> dict[str, dict[str, Any]]:
    """By other task: the settings that policies of an arm, trained on `task`, are evaluated with on it.

    Task, judge, response cap and evaluation are those of the arm on the other task, all else is as trained.
    """
    cross = {}
    for other in () if TARGET in spec.arms[arm] else spec.cross.get(task, ()):
        ours, theirs = configs[task][arm], configs[other][arm]
        if _start(ours) != _start(theirs):
            raise ValueError(
                f"cross: arm {arm!r} trained on {task!r} starts from {_start(ours)} and on {other!r} from "
                f"{_start(theirs)}; leave it out"
            )
        changed = {name: getattr(theirs, name) for name in COMPARED}
        changed["evaluation"] = replace(theirs.evaluation, average=False, team=False)
        config = replace(ours, **changed)
        cross[other] = {name: value for name, value in as_json(config).items() if name != "seed"}
    return cross


def _start(config: Config) -> str:
    """What decides the tokens that policies read and write: models, or for a table its task and response."""
    if config.policy.kind == "table":
        return f"a table of {config.task}, {config.max_response[1]} tokens"
    return " ".join(config.policy.models or (config.policy.model,))


def _check_equal_evaluation(arms: Mapping[str, Mapping[str, Any]], spec: Spec, task: str) -> None:
    """Raise ValueError if arms of a task are scored differently, but for settings that may differ."""
    first, settings = next(iter(arms.items()))
    for arm, other in arms.items():
        for name in evaluated_unlike(settings, other):
            group = name.split(".")[0]
            if group == "evaluation" or not {name, group} & set(spec.may_differ):
                hint = "" if group == "evaluation" else f", or list {name!r} under may_differ"
                raise ValueError(
                    f"arms {first!r} and {arm!r} are evaluated differently on task {task!r}: {name} is "
                    f"{settings.get(name)!r} and {other.get(name)!r}; make it equal{hint}"
                )


def evaluated_unlike(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings on which scores depend in which two runs differ."""
    return [name for name in differing([first, other]) if name.split(".")[0] in EQUAL]
