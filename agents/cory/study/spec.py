"""A study as it is written down: arms, seeds, tasks, and comparisons fixed before the first run."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cory.config.values import dotted_once
from cory.rng import check_seed

Settings = Mapping[str, Any]
"""Settings by the names of `cory train --help`, dotted or nested. `preset` may be one of them."""

MAY_DIFFER = ("task", "judge", "max_response")
"""Groups of settings on which scores depend and in which arms may differ where the study file says so."""

TARGET = "target"
"""Key of an arm that is evaluated, not trained: a function that loads players, as for `cory evaluate`."""
QUICK = {"iterations": 2, "evaluation.queries": 8, "evaluation.every": 1}
"""Settings of all arms with `--quick`."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A claim: `arm` is better than `baseline` in `metric` by more than `margin`."""

    arm: str
    baseline: str
    """Arms, sweeps or pools."""
    metric: str = "combined_reward"
    """By its name: docs/studies/README.md has all of them, `cory.study.metric` what they mean."""
    baseline_metric: str = ""
    """The baseline's metric if it is another one; arm and baseline may be the same then."""
    margin: float = 0.0
    """In the metric's unit, 0 or more. A study file may give one by task: `{reviews: 0.1, sums: 0.02}`."""
    direction: Literal["higher", "lower", "equal"] = "higher"
    """The claim: by more than the margin `higher` or `lower`, or `equal`, no further than the margin from
    `expected`."""
    expected: float = 0.0
    """The difference that `equal` claims, such as a derived value."""
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
    """The reference point of hypervolumes: a KL in nats, and the reference model's reward."""

    kl: float = 20.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A task of a suite: by what metric runs are scored, from 0 (the reference) to 1 (the best known)."""

    metric: str
    """As in comparisons."""
    reference: float
    """The metric before training."""
    best: float
    """The best value known, or derived. Scores above 1 are better ones."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything a study file says; see docs/studies/README.md."""

    name: str
    question: str
    notes: str = ""
    """What a reader must know: comparisons that were replaced or added when runs had been seen."""
    arms: Mapping[str, Settings]
    """By name; a value may be given by task, `{reviews: 98, sums: 48}`. With `target`, a function that loads
    players, the arm is evaluated and not trained."""
    preset: str = "pocket"
    settings: Settings = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    cross: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By task that is trained on: the other tasks that its policies are evaluated on after training."""
    strangers: tuple[str, ...] = ()
    """Arms of which, after training, each seed's pioneer plays with the observers of the other seeds."""
    evaluation: Settings = field(default_factory=dict)
    primary: tuple[Comparison, ...] = ()
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Arms that comparisons take as one, by its name: at a seed the mean of theirs (a main effect)."""
    suite: Mapping[str, Scale] = field(default_factory=dict)
    """Scales of the tasks over which arms are compared as a whole (`cory.study.suite`)."""
    frontier: Frontier = Frontier()
    may_differ: tuple[str, ...] = ()
    out: Path = Path()
    results: Path | None = None

    def quick(self) -> "Spec":
        """One seed of two iterations of every arm, in `<out>/quick`, never in the committed results."""
        arms = {name: {**arm, **QUICK} for name, arm in self.arms.items()}
        return replace(self, arms=arms, seeds=self.seeds[:1], out=self.out / "quick", results=None)


def flattened(settings: Settings, tasks: Collection[str]) -> dict[str, Any]:
    """Settings of an arm as `kl.coef: 0.1`; values by task, with keys among `tasks`, stay as they are."""
    names = set(tasks)
    return dotted_once(
        settings, whole=lambda value: isinstance(value, Mapping) and len(value) > 0 and value.keys() <= names
    )


def on_task(settings: Settings, task: str) -> dict[str, Any]:
    """An arm's settings on a task: a value by task becomes that of the task, or is left out."""
    return {
        name: value[task] if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if not isinstance(value, Mapping) or task in value
    }


def seeds_of(value: Any) -> tuple[int, ...]:
    """Seeds from a list, or 0, 1, ... from their number."""
    seeds = tuple(range(value)) if type(value) is int else value
    if not isinstance(seeds, list | tuple) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"seeds is {value!r}; give their number or a list of whole numbers")
    for seed in seeds:
        check_seed(seed)
    return tuple(dict.fromkeys(seeds))
