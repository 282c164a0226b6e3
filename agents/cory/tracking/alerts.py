"""Alerts: warnings about a run that cannot learn, or goes wrong while its metrics are still finite.

Imports no policy: functions of logged metrics only, which return warnings by name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cory.tracking.tracker import split

WINDOW = 10
"""Iterations that are averaged over."""

COLLAPSED_SHARE = 0.5
"""Share of the reference's distinct-2 below which responses count as collapsed."""

RUNAWAY_KL = 50.0
"""KL to the reference in nats per response; an alert follows `WINDOW` consecutive iterations above it."""

DEAD_CRITIC = 0.05
"""Explained variance of returns below which a value head counts as dead."""

FIRST_KL = 1.0
"""Nats per response that a policy may be away from its reference after one iteration."""

MOST = 0.5
"""Share of responses above which they are called most."""

LEAST = 0.001
"""Smallest loss of combined reward that is a warning: no other is seen in three decimals."""

FEW = 30
"""Held-out queries below which a comparison with the reference is left out."""

Row = Mapping[str, float]
Warnings = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class AlertsConfig:
    """What follows on alerts."""

    stop: bool = False
    """Whether an alert ends the run with an error; the newest checkpoint is kept."""


def training(
    rows: Sequence[Row], *, missed: int = 0, ends: bool = False, example: Callable[[], str] = str
) -> Warnings:
    """Warnings from the metrics of all iterations so far.

    What leaves nothing to learn is reported at once in the first iteration, later if it holds for `WINDOW`
    iterations. `missed`: how many iterations have lost their metrics; `ends`: whether responses are meant to
    end before their cap; `example` returns a clause with a response and its score.
    """
    window = rows[-WINDOW:] if len(rows) >= WINDOW else ()
    warnings = _first_kl(rows[1]) if len(rows) == 2 and not missed else {}
    if last := rows if len(rows) == 1 else window:
        seats = [split(name).place for name in last[-1] if name.endswith("/payoff_std")]
        for seat in seats:
            warnings |= _without_spread(last, seat, seats, example) | _empty_or_cut(last, seat, ends=ends)
    if window:
        warnings |= _runaway(window)
    if len(rows) >= 2 * WINDOW:  # value heads start from zero
        warnings |= _dead_critics(window)
    return warnings


def _first_kl(row: Row) -> Warnings:
    """Warnings for policies that the first update has moved too far."""
    return {
        f"fast {key.policy}": (
            f"KL of {key.policy} is {value:.1f} nats per response after one iteration, above {FIRST_KL:g}: "
            "its responses are no longer the reference's; lower learner.lr, or raise kl.coef"
        )
        for name, value in row.items()
        if name.endswith("/kl") and (key := split(name)) and value > FIRST_KL
    }


def _runaway(rows: Sequence[Row]) -> Warnings:
    """Warnings for policies that are far from their references in all rows."""
    return {
        f"runaway {policy}": (
            f"KL of {policy} has been above {RUNAWAY_KL} nats per response for {WINDOW} iterations: it is "
            "leaving the reference; raise kl.coef or lower learner.lr"
        )
        for policy in sorted({split(name).policy for name in rows[-1] if name.endswith("/kl")})
        if all(x > RUNAWAY_KL for row in rows for name, x in row.items() if name.endswith(f"/{policy}/kl"))
    }


def _dead_critics(rows: Sequence[Row]) -> Warnings:
    """A warning for every policy whose values explain next to nothing of the returns in all rows and seats.

    One dip says little: values lag behind returns that rise fast, and behind a new seat.
    A central critic is one for all policies.
    """
    explained: dict[str, list[float]] = {}
    for row in rows:
        central = any(name.startswith("all/critic/") for name in row)
        for name, value in row.items():
            if name.endswith("/explained_variance") and name.startswith("all/critic/") == central:
                explained.setdefault(split(name).policy, []).append(value)
    warnings = {}
    for policy, values in sorted(explained.items()):
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if 2 * len(finite) > len(values) and max(finite) < DEAD_CRITIC:  # else returns were mostly equal
            name = "the central critic" if policy == "critic" else f"the value head of {policy}"
            raised = "critic.lr" if policy == "critic" else "learner.value-lr or algorithm.value-clip"
            warnings[f"dead critic {policy}"] = (
                f"{name} has explained at most {max(finite):.2f} of the variance of returns for {WINDOW} "
                f"iterations: it hardly lowers the variance of advantages; raise {raised}"
            )
    return warnings


def _without_spread(
    rows: Sequence[Row], seat: str, seats: Sequence[str], example: Callable[[], str]
) -> Warnings:
    """A warning if a seat has nothing to learn from: equal payoffs in all games, or in all of each query."""
    remedy = "what changes from here on is noise; change the reward, or take prompts whose responses differ"
    constant = _all(rows, seat, "payoff_std", 0.0)
    if not constant and not _all(rows, seat, "queries_without_spread", 1.0):
        return {}
    what = f" ({clause})" if (clause := example()) else ""
    if not constant:
        return {
            f"groups {seat}": (
                f"all games of a query pay {seat} the same{what}: groups of equal payoffs teach nothing, and "
                f"{remedy}"
            )
        }
    if all(_all(rows, other, "score_std", 0.0) for other in seats):
        score = seat_values(rows[-1:], seat, "task_reward")[0]
        return {
            "constant score": f"every response has the same score, {score:g}{what}: unless it is the best "
            f"one there is, nothing can be learned, and {remedy}"
        }
    if _all(rows, seat, "score_std", 0.0):
        return {
            f"constant score {seat}": f"every response of {seat} has the same score, and so its payoff: "
            f"there is nothing to learn for it, and {remedy}"
        }
    return {
        f"constant payoff {seat}": f"all games pay {seat} the same though scores differ: the payoff cancels "
        "them; choose another --payoff"
    }


def _empty_or_cut(rows: Sequence[Row], seat: str, *, ends: bool) -> Warnings:
    """Warnings if most responses of a seat are empty, or do not end before their cap."""
    empty = seat_values(rows, seat, "empty_share")
    cut = [1 - value for value in seat_values(rows, seat, "eos_share")]
    warnings = {}
    if empty and min(empty) > MOST:
        warnings[f"empty {seat}"] = (
            f"{empty[-1]:.0%} of the responses of {seat} are empty: the model ends at once; check the prompt "
            "as the seat reads it (cory check), and whether the model wants --task.chat"
        )
    if ends and cut and min(cut) > MOST:
        warnings[f"cut {seat}"] = (
            f"{cut[-1]:.0%} of the responses of {seat} are cut at their cap: their end is never scored; "
            "raise max_response, or ask for shorter ones"
        )
    return warnings


def evaluation(metrics: Row, *, queries: int) -> Warnings:
    """Warnings from one held-out evaluation on so many `queries`.

    Training hurts where the combined reward is below the reference's by more than two standard errors.
    """
    keys = {split(name): value for name, value in metrics.items() if name.startswith("eval/")}
    of = {(key.policy, key.quantity): value for key, value in keys.items()}
    names = dict.fromkeys(policy for policy, _ in of)
    warnings = {}
    for name in (name for name in names if not name.startswith("reference")):
        reference = f"reference_{name}" if f"reference_{name}" in names else "reference"
        value, start = (of.get((side, "distinct_2")) for side in (name, reference))
        if value is not None and start is not None and value < COLLAPSED_SHARE * start:
            warnings[f"collapse {name}"] = (
                f"responses of {name} have collapsed: distinct-2 is {value:.2f}, the reference's "
                f"{start:.2f}; raise kl.coef, or set kl.kind k1"
            )
        value, start = (of.get((side, "combined_reward")) for side in (name, reference))
        if value is None or start is None or queries < FEW:
            continue
        if value < start - max(LEAST, 2 * of.get((name, "gain_error"), math.inf)):
            warnings[f"worse {name}"] = (
                f"combined reward of {name} on held-out queries is {value:.3f}, below the reference's "
                f"{start:.3f}: training makes it worse; lower learner.lr, or raise kl.coef"
            )
    spreads = [value for (_, quantity), value in of.items() if quantity == "score_std"]
    if queries > 1 and spreads and not any(spreads):
        score = next(value for (_, quantity), value in of.items() if quantity == "task_reward")
        warnings["constant evaluation"] = (
            f"every held-out response, the reference's too, has the same score, {score:g}: evaluations "
            "cannot tell policies apart; check the reward on the test split"
        )
    return warnings


def _all(rows: Sequence[Row], seat: str, quantity: str, value: float) -> bool:
    """Whether a seat's quantity is logged and has this value in all rows."""
    values = seat_values(rows, seat, quantity)
    return bool(values) and all(other == value for other in values)


def seat_values(rows: Sequence[Row], seat: str, quantity: str) -> list[float]:
    """A quantity of one seat row by row, whichever policy sat there."""
    return [
        value
        for row in rows
        for name, value in row.items()
        if name.startswith(f"{seat}/") and name.endswith(f"/{quantity}")
    ]
