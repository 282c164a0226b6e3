"""A study as it is written down: arms, seeds, tasks, and comparisons fixed before the first run."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from cory.evaluation.records import DEFINING
from cory.tracking.labels import LABELS

Settings = Mapping[str, Any]
"""Settings by the names of `cory train --help`, dotted or nested. `preset` may be one of them."""

DIRECTIONS = ("higher", "lower")
NAME = re.compile(r"[A-Za-z0-9][\w.+=-]*")
"""Names of studies, arms and tasks, which are names of folders."""

MAY_DIFFER = ("task", "judge", "max_response")
"""Groups of settings on which scores depend and in which arms may differ where the study file says so."""

GAME = ("task_reward", "payoff", "kl", "combined_reward", "response_length")
"""Training metrics of each seat that results hold, as means over windows."""

QUICK = ("arms", "seeds", "settings", "tasks")

TARGET = "target"
"""Key of an arm that is evaluated, not trained: a function that loads players, as for `cory evaluate`."""
ON = "on/"
"""Prefix of metrics of runs that are evaluated on another task."""
OF_TRAINING = ("game/", "average/", ON, "hypervolume", "reward_at_kl/", "survival")
"""Metrics, or their beginnings, that only trained arms have."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A claim: `arm` is better than `baseline` in `metric` by more than `margin`."""

    arm: str
    baseline: str
    """Arms or sweeps."""
    metric: str = "combined_reward"
    """A quantity of the standalone evaluation (mean over the policies), `game/<quantity>` (mean over the
    seats at the end of training), `game/collective_reward` (sum of the seats' scores), `average/<quantity>`
    (standalone, of the mean of the policies' weights, with `evaluation.average` or `learner.ema`),
    `team/<seat>/<quantity>` and `team/<quantity>` (held-out games of all seats, with `evaluation.team`),
    `on/<task>/<quantity>` (standalone on another task, with `cross`), `hypervolume`, `reward_at_kl/<nats>`,
    `survival` (iterations without collapse)."""
    margin: float = 0.0
    """In the metric's unit, 0 or more. A study file may give one per task: `{reviews: 0.1, sums: 0.02}`."""
    direction: str = "higher"
    """Whether `higher` or `lower` is better."""
    task: str | None = None
    """One task; none = every task, one comparison each."""
    claim: str = ""
    """The claim in words."""
    source: str = ""
    """Where the claim is made."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Arms along one setting. In comparisons it stands for the area under the metric over that setting."""

    setting: str
    arms: tuple[str, ...]
    log: bool = False
    """Whether the area is taken over the setting's logarithm."""


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The reference point of hypervolumes: a KL in nats, and a reward (none = the reference model's)."""

    kl: float = 20.0
    reward: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything a study file says; see docs/studies/README.md."""

    name: str
    question: str
    arms: Mapping[str, Settings]
    """By name; with `target`, a function that loads players, the arm is evaluated and not trained."""
    preset: str = "pocket"
    settings: Settings = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    cross: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By task that is trained on: the other tasks that its policies are evaluated on after training."""
    evaluation: Settings = field(default_factory=dict)
    budgets: Mapping[str, float] = field(default_factory=dict)
    primary: tuple[Comparison, ...] = ()
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    ladder: tuple[str, ...] = ()
    """Arms of which each changes one thing more than the one before it, drawn as steps."""
    frontier: Frontier = Frontier()
    may_differ: tuple[str, ...] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)
    out: Path = Path()
    results: Path | None = None

    def narrowed(self) -> "Spec":
        """The study with its `quick` overrides, written to `<out>/quick`, never to the committed results."""
        arms = {name: self.arms[name] for name in self.quick.get("arms", self.arms)}
        tasks = {name: self.tasks[name] for name in self.quick.get("tasks", self.tasks)}
        kept = {name: s for name, s in self.sweeps.items() if set(s.arms) <= arms.keys()}
        names = arms.keys() | kept.keys()
        return replace(
            self,
            arms={name: {**arm, **flattened(self.quick.get("settings", {}))} for name, arm in arms.items()},
            tasks=tasks,
            cross={
                name: tuple(other for other in others if other in tasks)
                for name, others in self.cross.items()
                if name in tasks
            },
            seeds=_seeds(self.quick["seeds"]) if "seeds" in self.quick else self.seeds,
            sweeps=kept,
            ladder=tuple(name for name in self.ladder if name in arms),
            primary=tuple(
                one
                for one in self.primary
                if {one.arm, one.baseline} <= names and {one.task, tested_on(one.metric)[0]} <= {None, *tasks}
            ),
            out=self.out / "quick",
            results=None,
        )


def read_spec(path: Path) -> Spec:
    """Read a study file; ValueError that names the file and what is wrong."""
    if not path.is_file():
        raise ValueError(f"there is no study file {path}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
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
        preset=str(values.get("preset", "pocket")),
        settings=_mapping(values, "settings"),
        arms=_named_settings(values, "arms"),
        tasks=_named_settings(values, "tasks"),
        cross=_cross(values),
        seeds=_seeds(values.get("seeds", 5)),
        evaluation=_mapping(values, "evaluation"),
        budgets=_mapping(values, "budgets"),
        primary=tuple(
            _make(Comparison, one, "a primary comparison")
            for written in values.get("primary") or ()
            for one in _by_task(written)
        ),
        sweeps={
            _name(name, "sweep"): _make(Sweep, {**one, "arms": tuple(one.get("arms", ()))}, f"sweep {name!r}")
            for name, one in _mapping(values, "sweeps").items()
        },
        ladder=tuple(values.get("ladder") or ()),
        frontier=_make(Frontier, _mapping(values, "frontier"), "frontier"),
        may_differ=tuple(values.get("may_differ") or ()),
        quick=_mapping(values, "quick"),
        out=Path(values.get("out") or Path("runs/studies") / str(values["name"])),
        results=Path(values["results"]) if values.get("results") else None,
    )
    _check(spec)
    return spec


def check_keys(given: Iterable[str], known: Sequence[str], where: str, what: str = "key") -> None:
    """Raise ValueError for the first key that is not known, with the nearest one."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"{where} has no {what} {key!r}; {hint}")


def flattened(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Settings as `kl.coef: 0.1`, from dotted and nested ones alike."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = prefix + str(name).replace("-", "_")
        flat |= flattened(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def tested_on(metric: str) -> tuple[str | None, str]:
    """The other task and the quantity of `on/<task>/<quantity>`; None and the metric itself for any other."""
    if not metric.startswith(ON):
        return None, metric
    task, _, quantity = metric.removeprefix(ON).partition("/")
    return task, quantity


def _check(spec: Spec) -> None:
    for name in spec.may_differ:
        if str(name).split(".")[0] not in MAY_DIFFER:
            raise ValueError(f"may_differ holds {name!r}; it lists settings of {', '.join(MAY_DIFFER)}")
    check_keys(spec.quick, QUICK, "quick")
    for part, known in (("arms", spec.arms), ("tasks", spec.tasks)):
        check_keys(spec.quick.get(part) or (), list(known), f"the study's {part}")
    check_keys(spec.ladder, list(spec.arms), "the ladder: the study's arms")
    for name, sweep in spec.sweeps.items():
        check_keys(sweep.arms, list(spec.arms), f"sweep {name!r}: the study's arms")
        if name in spec.arms or len(sweep.arms) < 2:
            raise ValueError(f"sweep {name!r} needs two arms or more, and a name that no arm has")
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
            (one.arm, one.baseline), [*spec.arms, *spec.sweeps], "a primary comparison: the study", "arm"
        )
        _check_metric(one.metric)
        _check_tested_on(one, spec)
        if one.task is not None:
            check_keys([one.task], list(spec.tasks), "a primary comparison: the study's tasks")
        if one.direction not in DIRECTIONS or not one.margin >= 0 or one.arm == one.baseline:
            raise ValueError(
                f"the comparison of {one.arm} with {one.baseline} has direction {one.direction!r} and margin "
                f"{one.margin}; give two arms, one of {', '.join(DIRECTIONS)}, and a margin of 0 or more"
            )


def _check_metric(metric: str) -> None:
    """Raise ValueError, with the nearest name, for a metric that no run has."""
    if metric in ("hypervolume", "survival") or re.fullmatch(r"reward_at_kl/[\d.]+", metric):
        return
    place, _, rest = metric.rpartition("/")
    if re.fullmatch(r"pass_at_\d+", rest) and place != "game":
        return
    known = ("collective_reward", *GAME) if place == "game" else tuple(LABELS)
    if rest not in known or not re.fullmatch(r"|average|game|team(/\w+)?|on/[^/]+", place):
        names = [f"{place}/{name}" if place else name for name in known]
        near = difflib.get_close_matches(metric, [*names, "hypervolume", "survival"], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"a primary comparison: there is no metric {metric!r}; {hint}")


def _check_tested_on(one: Comparison, spec: Spec) -> None:
    """Raise ValueError for `on/<task>/...` of a task that the runs are not evaluated on."""
    tested, _ = tested_on(one.metric)
    if tested is None:
        return
    check_keys([tested], [name for others in spec.cross.values() for name in others], "cross", "task")
    trained = [task for task, others in spec.cross.items() if tested in others]
    if one.task not in trained:
        raise ValueError(
            f"a primary comparison by {one.metric} has the task {one.task!r}; give the task that is trained "
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


def _named_settings(values: Mapping[str, Any], key: str) -> dict[str, Settings]:
    found: dict[str, Settings] = {}
    for name, settings in _mapping(values, key).items():
        if not isinstance(settings, Mapping | None):
            raise ValueError(f"{key}: {name} is {settings!r:.80}; give settings, or {{}} for none")
        found[_name(name, key)] = flattened(settings or {})
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
            f"{what}: the name {name!r} is no name of a folder; use letters, digits and . _ + = -"
        )
    return str(name)


def _seeds(value: Any) -> tuple[int, ...]:
    """Seeds from a list, or 0, 1, ... from their number."""
    seeds = tuple(range(value)) if type(value) is int else value
    if not isinstance(seeds, list | tuple) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"seeds is {value!r}; give their number or a list of whole numbers")
    return tuple(dict.fromkeys(seeds))
