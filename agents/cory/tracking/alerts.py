"""Alerts: warnings about a run that goes wrong while its metrics are still finite.

Imports no policy: functions of logged metrics only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from cory.tracking.tracker import split

WINDOW = 10
"""Iterations that are averaged over."""

COLLAPSED_SHARE = 0.5
"""Share of the reference's distinct-2 below which responses count as collapsed."""

DEAD_CRITIC = 0.05
"""Explained variance of returns below which a value head counts as dead."""


def is_collapsed(distinct_2: float, reference: float) -> bool:
    """Whether distinct-2 of held-out responses is below half of the reference's."""
    return distinct_2 < COLLAPSED_SHARE * reference


@dataclass(frozen=True, kw_only=True)
class AlertsConfig:
    """Thresholds of alerts."""

    kl: float = 50.0
    """KL to the reference in nats per response; an alert follows 10 consecutive iterations above it."""

    stop: bool = False
    """Whether an alert ends the run with an error; the newest checkpoint is kept."""

    def __post_init__(self) -> None:
        if not self.kl > 0:
            raise ValueError(f"alerts.kl is {self.kl}; give nats above 0")


def training(rows: Sequence[Mapping[str, float]], config: AlertsConfig) -> dict[str, str]:
    """Warnings by name, from the metrics of all iterations so far."""
    warnings: dict[str, str] = {}
    if len(rows) < WINDOW:
        return warnings
    last = rows[-WINDOW:]
    for policy in sorted({split(name).policy for name in last[-1] if name.endswith("/kl")}):
        divergences = [value for row in last for name, value in row.items() if name.endswith(f"/{policy}/kl")]
        if all(value > config.kl for value in divergences):
            warnings[f"runaway {policy}"] = (
                f"KL of {policy} has been above {config.kl} nats per response for {WINDOW} "
                "iterations: it is leaving the reference; raise kl.coef or lower learner.lr"
            )
    return warnings | _critic_warnings(rows)


def _critic_warnings(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """A warning for every policy whose values explain next to nothing of the returns.

    The mean is over the last `WINDOW` iterations and all seats of the policy; the first ones do not
    count, since value heads start from zero. A central critic is one for all policies.
    """
    if len(rows) < 2 * WINDOW:
        return {}
    explained: dict[str, list[float]] = {}
    for row in rows[-WINDOW:]:
        central = any(name.startswith("all/critic/") for name in row)
        for name, value in row.items():
            if name.endswith("/explained_variance") and name.startswith("all/critic/") == central:
                explained.setdefault(split(name).policy, []).append(value)
    warnings = {}
    for policy, values in sorted(explained.items()):
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if finite and mean(finite) < DEAD_CRITIC:
            name = "the central critic" if policy == "critic" else f"the value head of {policy}"
            raised = "critic.lr" if policy == "critic" else "learner.value-lr or algorithm.value-clip"
            warnings[f"dead critic {policy}"] = (
                f"{name} explains {mean(finite):.2f} of the variance of returns (mean of {WINDOW} "
                f"iterations): it hardly lowers the variance of advantages; raise {raised}"
            )
    return warnings


def evaluation(metrics: Mapping[str, float]) -> dict[str, str]:
    """Warnings by name, from the metrics of one held-out evaluation."""
    keys = {split(name): value for name, value in metrics.items() if name.startswith("eval/")}
    distinct = {key.policy: value for key, value in keys.items() if key.quantity == "distinct_2"}
    references = {name: value for name, value in distinct.items() if name.startswith("reference")}
    warnings = {}
    for name, value in distinct.items():
        reference = references.get(f"reference_{name}", references.get("reference"))
        if name in references or reference is None:
            continue
        if is_collapsed(value, reference):
            warnings[f"collapse {name}"] = (
                f"responses of {name} have collapsed: distinct-2 is {value:.2f}, the reference's "
                f"{reference:.2f}; raise kl.coef, or set kl.kind k1"
            )
    return warnings
