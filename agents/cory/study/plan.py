"""The runs of a study: a configuration for every arm, task and seed, made before the first run starts."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cory.config import parsing, presets
from cory.config.parsing import as_json
from cory.config.schema import Config
from cory.judges.weighted_sum import closing
from cory.policies.loading import load_tokenizer
from cory.runtime.sources import sources_of
from cory.runtime.yaml_files import read_yaml
from cory.study.spec import MAY_DIFFER, TARGET, Settings, Spec, flattened, on_task
from cory.training.evaluate import COMPARED
from cory.training.factory import make_measures, make_task
from cory.training.targets import Target, load_external

EQUAL = ("evaluation", *MAY_DIFFER)
"""Settings, or groups of them, on which scores depend: equal for all arms of a task."""

PAYOFFS: Mapping[Any, float] = {"cooperative": 1.0, "independent": 0.0, "competitive": -1.0}
"""Named payoffs as lambda, for sweeps over the payoff."""


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
    def name(self) -> str:
        """Arm, task and seed as the path of the run directory below the study's folder."""
        return f"{self.arm}/{self.task}/seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of a study, and what is common to the arms of a task."""

    runs: tuple[PlannedRun, ...]
    kl_coef: Mapping[str, float]
    """By task: the coefficient of the combined reward in tables, that of the base settings."""
    evaluation: Mapping[str, Mapping[str, Any]]
    """By task: the evaluation settings."""


def make_plan(spec: Spec) -> Plan:
    """Build every configuration; ValueError for one that cannot be built or is evaluated differently."""
    tasks = spec.tasks or {_config(spec, {}, {}, "the base settings").task: {}}
    runs, kl_coef, evaluation = [], {}, {}
    by_task: dict[str, dict[str, Config]] = {}
    for task, task_settings in tasks.items():
        base = _config(spec, task_settings, {}, f"task {task!r}")
        kl_coef[task] = base.kl.coef
        evaluation[task] = {k: v for k, v in as_json(base).items() if k.startswith("evaluation.")}
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
                sources=sources[arm],
            )
            for seed in spec.seeds
            for arm, config in configs.items()
        ]
    return Plan(runs=tuple(runs), kl_coef=kl_coef, evaluation=evaluation)


def _check_measured(spec: Spec, configs: Mapping[str, Mapping[str, Config]]) -> None:
    """Raise ValueError for a comparison by a metric that the evaluations of an arm will not have."""
    for one in spec.primary:
        for name, metric in ((one.arm, one.metric), (one.baseline, one.baseline_metric or one.metric)):
            sweep = spec.sweeps.get(name)
            arms = sweep.arms if sweep is not None else spec.pools.get(name, (name,))
            for task, of_task in configs.items():
                for arm in arms if one.task in (None, task) else ():
                    if needed := _unmeasured(metric, of_task[arm]):
                        raise ValueError(
                            f"a primary comparison by {metric}: arm {arm!r} on task {task!r} needs {needed}"
                        )


def _unmeasured(metric: str, config: Config) -> str | None:
    """The setting without which no evaluation has the metric; None if it will be measured."""
    place, _, quantity = metric.rpartition("/")
    evaluation, found = config.evaluation, re.fullmatch(r"pass_at_(\d+)", quantity)
    if found is not None and int(found[1]) > evaluation.samples:
        return f"evaluation.samples of {found[1]} or more"
    if place.split("/")[0] == "team" and not evaluation.team:
        return "evaluation.team"
    if quantity in ("second_judge", "probability") and quantity not in make_measures(config):
        return "the task reviews" + (", judged by a classifier" if quantity == "probability" else "")
    if place == "apart" and len(config.policy_names) < 2:
        return "two policies or more"
    if place == "average" and not config.learner.ema:
        if len(config.policy_names) < 2:
            return "two policies or more, or learner.ema"
        return None if evaluation.average else "evaluation.average"
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
            number = PAYOFFS[value] if isinstance(value, str) and value in PAYOFFS else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (log and number <= 0):
        kind = "a number above 0" if log else "a number"
        raise ValueError(f"a sweep over {name!r} needs {kind} in every arm, not {value!r}")
    return number


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
        settings = read_yaml(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); move {folder} away") from error
    return dict(settings) if isinstance(settings, dict) else {}


def changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The settings that differ, in words; empty for the same run."""
    if dict(stored) == dict(wanted):
        return []
    return parsing.changes(completed(stored), wanted)


def _config(spec: Spec, task: Settings, arm: Settings, where: str) -> Config:
    """One configuration: the preset, changed by base settings, task, evaluation and arm, in this order."""
    merged: dict[str, Any] = {"preset": spec.preset, "threads": 1}
    for part in (spec.settings, {"evaluation": spec.evaluation}, task, arm):
        merged |= flattened(part)
    try:
        default = presets.get(str(merged.pop("preset")))
        merged.pop(TARGET, None)
        return Config.from_flat(merged, default)
    except ValueError as error:
        raise ValueError(f"{where} cannot be built: {error}") from error


def _cross(
    spec: Spec, configs: Mapping[str, Mapping[str, Config]], task: str, arm: str
) -> dict[str, dict[str, Any]]:
    """By other task: the settings that policies of an arm, trained on `task`, are evaluated with on it.

    Task, judge, response cap and evaluation are those of the arm on the other task, all else is as trained.
    """
    found = {}
    for other in () if TARGET in spec.arms[arm] else spec.cross.get(task, ()):
        ours, theirs = configs[task][arm], configs[other][arm]
        where = f"cross: arm {arm!r} trained on {task!r} cannot be evaluated on {other!r}"
        _check_same_tokens(ours, theirs, where)
        changed = {name: getattr(theirs, name) for name in COMPARED}
        changed["evaluation"] = replace(theirs.evaluation, average=False, team=False)
        try:
            config = replace(ours, **changed)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        found[other] = {name: value for name, value in as_json(config).items() if name != "seed"}
    return found


def _check_same_tokens(ours: Config, theirs: Config, where: str) -> None:
    """Raise ValueError unless policies of one configuration can read and answer queries of the other."""
    names = [(one.policy.kind, one.policy.model, *one.policy.models) for one in (ours, theirs)]
    is_table = "table" in (ours.policy.kind, theirs.policy.kind)
    if (is_table or names[0] != names[1]) and _vocabulary(ours) != _vocabulary(theirs):
        described = " and ".join(" ".join(parts) for parts in names)
        raise ValueError(f"{where}: {described} have different tokenizers; leave it out")
    caps = ours.max_response[1], theirs.max_response[1]
    if is_table and caps[0] != caps[1]:
        raise ValueError(f"{where}: tables have rows for responses of {caps[0]} and {caps[1]} tokens")


def _vocabulary(config: Config) -> dict[str, int] | list[str]:
    """The tokens of a configuration's policies; for tables those of the task."""
    if config.policy.kind == "table":
        task = make_task(config)
        with closing(task):
            return [task.tokenizer.decode([i]) for i in range(task.tokenizer.vocab_size)]
    found: dict[str, int] = load_tokenizer((*config.policy.models, config.policy.model)[0]).get_vocab()
    return found


def _check_equal_evaluation(arms: Mapping[str, Mapping[str, Any]], spec: Spec, task: str) -> None:
    """Raise ValueError if arms of a task are scored differently, but for settings that may differ."""
    first, settings = next(iter(arms.items()))
    for arm, other in arms.items():
        for name in sorted({*settings, *other}):
            group = name.split(".")[0]
            allowed = group != "evaluation" and bool({name, group} & set(spec.may_differ))
            if group in EQUAL and not allowed and settings.get(name) != other.get(name):
                hint = "" if group == "evaluation" else f", or list {name!r} under may_differ"
                raise ValueError(
                    f"arms {first!r} and {arm!r} are evaluated differently on task {task!r}: {name} is "
                    f"{settings.get(name)!r} and {other.get(name)!r}; make it equal{hint}"
                )
