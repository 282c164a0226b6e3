"""Warnings that a run is going wrong while its numbers are still finite. Knows numbers, no policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from cory.tracking.tracker import Key, split


@dataclass(frozen=True, kw_only=True)
class AlertsConfig:
    """When a run is warned about."""

    kl: float = 50.0
    """Nats per response from the reference that a policy should not reach in `window` iterations running."""

    distinct: float = 0.5
    """Collapse: distinct-2 of held-out answers falls below this share of the reference's."""

    window: int = 10
    """Iterations that means are taken over."""

    stop: bool = False
    """Whether a warning ends the run, as an error; the newest checkpoint stands."""

    def __post_init__(self) -> None:
        if not self.kl > 0 or self.window < 1 or not 0 <= self.distinct <= 1:
            raise ValueError(
                f"guards are kl {self.kl}, distinct {self.distinct}, window {self.window}; give kl above 0, "
                "distinct from 0 to 1, window from 1"
            )


def training(rows: Sequence[Mapping[str, float]], config: AlertsConfig) -> dict[str, str]:
    """Warnings by name, from the rows of all iterations so far."""
    told: dict[str, str] = {}
    if len(rows) < config.window:
        return told
    last = rows[-config.window :]
    for policy in sorted({split(name).policy for name in last[-1] if name.endswith("/kl")}):
        prices = [value for row in last for name, value in row.items() if name.endswith(f"/{policy}/kl")]
        if all(value > config.kl for value in prices):
            told[f"runaway {policy}"] = (
                f"KL of {policy} has been above {config.kl} nats per response for {config.window} "
                "iterations: it is leaving the reference; raise kl.coef or lower learner.lr"
            )
    return told | _seats(rows, config)


def _seats(rows: Sequence[Mapping[str, float]], config: AlertsConfig) -> dict[str, str]:
    """Warnings about seats against one another."""
    seats = sorted({split(name).place for name in rows[-1] if name.endswith("/task_reward")})
    if len(seats) < 2 or len(rows) < 2 * config.window:
        return {}
    told = {}
    early, late = rows[: config.window], rows[-config.window :]
    gain = {
        seat: mean(seen(late, seat, "task_reward")) - mean(seen(early, seat, "task_reward")) for seat in seats
    }
    scores = {seat: seen(late, seat, "task_reward") for seat in seats}
    pioneer = next(seat for seat in seats if seat.startswith("pioneer"))
    others = [seat for seat in seats if seat != pioneer]
    if gain[pioneer] <= 0 and all(
        min(row) > own for own, *row in zip(scores[pioneer], *(scores[s] for s in others), strict=True)
    ):
        told["weak pioneer"] = (
            f"the pioneer has gained nothing ({gain[pioneer]:+.2f}) and scored below every observer for "
            f"{config.window} iterations: is it paid for their scores (payoff), do they read it (sees)?"
        )
    best = max(gain, key=lambda seat: gain[seat])
    if gain[best] > 0 and gain[best] > 0.9 * sum(abs(value) for value in gain.values()):
        told["one seat"] = (
            f"{best} carries the payoffs: its task reward rose by {gain[best]:.2f}, that of the others by "
            + ", ".join(f"{value:+.2f}" for seat, value in sorted(gain.items()) if seat != best)
        )
    return told


def evaluation(numbers: Mapping[str, float], config: AlertsConfig) -> dict[str, str]:
    """Warnings by name, from one evaluation of every policy alone."""
    alone = {Key(*split(name)): value for name, value in numbers.items() if name.startswith("eval/")}
    distinct = {key.policy: value for key, value in alone.items() if key.quantity == "distinct_2"}
    references = {name: value for name, value in distinct.items() if name.startswith("reference")}
    told = {}
    for name, value in distinct.items():
        before = references.get(f"reference_{name}", references.get("reference"))
        if name not in references and before is not None and value < config.distinct * before:
            told[f"collapse {name}"] = (
                f"answers of {name} have collapsed: distinct-2 is {value:.2f}, the reference's {before:.2f}; "
                "raise kl.coef, or take kl.kind k1"
            )
    return told


def seen(rows: Sequence[Mapping[str, float]], place: str, quantity: str) -> list[float]:
    """A quantity of one seat, row by row, whoever sat there."""
    return [
        value
        for row in rows
        for name, value in row.items()
        if name.startswith(f"{place}/") and name.endswith(f"/{quantity}")
    ]
