"""Runs in groups of equal settings, and their training metrics, for figures that compare runs.

Imports no game, no model and no plot.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from cory.evaluation import records
from cory.tracking.curves import Curves, seats
from cory.tracking.tracker import Curve, curves, read

WINDOW = 5
"""Iterations at the end of training that stand for its result."""


class Run(NamedTuple):
    """The metrics of a run, and what `cory evaluate` has measured of it."""

    curves: Curves
    evaluations: list[dict[str, Any]]


class Group(NamedTuple):
    """Runs with equal settings but for the seed."""

    name: str
    settings: Mapping[str, Any]
    """By flag name, without the seed."""
    runs: list[Run]
    weight: float | None
    """λ of the payoff own + λ others'; None if it is no such payoff."""


def read_run(folder: Path) -> Run:
    """Read a run directory."""
    return Run(curves(read(folder)), records.read_all(folder))


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that are not equal in all, in the order of the first."""
    names = list(dict.fromkeys(name for one in settings for name in one))
    return [name for name in names if any(one.get(name) != settings[0].get(name) for one in settings)]


def written(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    """Settings as `seats=1, exchange.every=0`, without those it does not have."""
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


SINGLE = "single agent"


def ablation(base: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """What `other` lacks of `base`, in words; None if they differ otherwise or not at all."""
    changed = set(differing([base, other]))
    exchange = {name for name in changed if name.startswith("exchange.")}
    model = {name for name in changed if name in ("policy.model", "policy.models")}
    if changed == {"sees"} and other["sees"] == "none":
        return "without knowledge transfer"
    if changed and changed == exchange and not other["exchange.every"]:
        return "without role exchange"
    if "seats" in changed and changed <= {"seats", *exchange, *model} and other["seats"] == 1:
        return f"{SINGLE}, {other['policy.model']}" if model else SINGLE
    return None


def is_complete(settings: Mapping[str, Any]) -> bool:
    """Whether it is CORY with all of its parts."""
    return settings["seats"] > 1 and settings["sees"] != "none" and bool(settings["exchange.every"])


class HasSettings(Protocol):
    """Anything with settings by flag name."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings by flag name."""


T = TypeVar("T", bound=HasSettings)


def families_of(groups: Sequence[T], name: str) -> list[list[T]]:
    """Groups in families that differ in one setting only."""
    families: dict[str, list[T]] = {}
    for group in groups:
        families.setdefault(repr(sorted(without(group.settings, name).items())), []).append(group)
    return list(families.values())


def without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings but for one."""
    return {key: value for key, value in settings.items() if key != name}


def at_end(run: Run, quantity: str, policy: str | None = None) -> float:
    """Mean of a training metric over the last `WINDOW` iterations; NaN without any."""
    values = training_curve(run.curves, quantity, kl_coef=0.0, policy=policy).values[-WINDOW:]
    return float(np.mean(values)) if values else np.nan


def spread(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation; of one value, 0."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def training_curve(of_run: Curves, quantity: str, *, kl_coef: float, policy: str | None = None) -> Curve:
    """A training metric, mean over the seats of each iteration, of one policy or of all.

    Combined reward is task reward - kl_coef KL with the given coefficient.
    """
    if quantity == "combined_reward":
        reward, kl = (
            training_curve(of_run, one, kl_coef=kl_coef, policy=policy) for one in ("task_reward", "kl")
        )
        return Curve(
            reward.iterations,
            [r - kl_coef * k for r, k in zip(reward.values, kl.values, strict=True)],
        )
    places = set(seats(of_run))
    found: dict[int, list[float]] = {}
    for key, curve in of_run.items():
        if key.place in places and key.quantity == quantity and policy in (None, key.policy):
            for iteration, value in zip(*curve, strict=True):
                found.setdefault(iteration, []).append(value)
    times = sorted(found)
    return Curve(times, [float(np.mean(found[time])) for time in times])
