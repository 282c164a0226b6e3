"""Alerts of a run that cannot learn, or goes wrong from its first iterations on.

Imports no policy: functions of logged metrics only.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from cory.tracking.alerts import WINDOW
from cory.tracking.tracker import split

FIRST_KL = 1.0
"""Nats per response that a policy may be away from its reference after one iteration."""

MOST = 0.5
"""Share of responses above which they are called most."""

FEW = 30
"""Held-out responses below which a comparison with the reference is left out."""

Row = Mapping[str, float]


def training(rows: Sequence[Row], *, ends: bool = False, example: Callable[[], str] = str) -> dict[str, str]:
    """Warnings by name, from the metrics of all iterations so far.

    What holds in the first iteration is reported at once, later what holds for `WINDOW` iterations. `ends`:
    whether responses are meant to end before their cap. `example` returns a clause with a response
    and its score.
    """
    if not rows:
        return {}
    last = rows[-1:] if len(rows) == 1 else rows[-WINDOW:] if len(rows) >= WINDOW else ()
    places = [split(name) for name in rows[-1] if name.endswith("/payoff_std")]
    warnings = _first_kl(rows) if len(rows) == 2 else {}
    for seat in (place.place for place in places):
        if last:
            warnings |= _without_spread(last, seat, [place.place for place in places], example)
            warnings |= _empty_or_cut(last, seat, ends=ends)
    return warnings


def _first_kl(rows: Sequence[Row]) -> dict[str, str]:
    """Warnings for policies that the first update has moved too far."""
    return {
        f"fast {key.policy}": (
            f"KL of {key.policy} is {value:.1f} nats per response after one iteration, above {FIRST_KL:g}: "
            "its responses are no longer the reference's; lower learner.lr, or raise kl.coef"
        )
        for name, value in rows[1].items()
        if name.endswith("/kl") and (key := split(name)) and value > FIRST_KL
    }


def _without_spread(
    rows: Sequence[Row], seat: str, seats: Sequence[str], example: Callable[[], str]
) -> dict[str, str]:
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
            "constant score": f"every response has the same score, {score:g}{what}: there is nothing to "
            f"learn, and {remedy}"
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


def _empty_or_cut(rows: Sequence[Row], seat: str, *, ends: bool) -> dict[str, str]:
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


def evaluation(metrics: Row, *, responses: int) -> dict[str, str]:
    """Warnings by name from one held-out evaluation with so many `responses` of each policy.

    Training hurts where the combined reward is below the reference's by more than two standard errors.
    """
    keys = {split(name): value for name, value in metrics.items() if name.startswith("eval/")}
    of = {(key.policy, key.quantity): value for key, value in keys.items()}
    names = [policy for policy, quantity in of if quantity == "combined_reward"]
    warnings = {}
    for name in names:
        reference = f"reference_{name}" if f"reference_{name}" in names else "reference"
        if name.startswith("reference") or reference not in names or responses < FEW:
            continue
        value, start = of[name, "combined_reward"], of[reference, "combined_reward"]
        spread = math.hypot(of.get((name, "score_std"), 0.0), of.get((reference, "score_std"), 0.0))
        if value < start - 2 * spread / math.sqrt(responses):
            warnings[f"worse {name}"] = (
                f"combined reward of {name} on held-out queries is {value:.3f}, below the reference's "
                f"{start:.3f}: training makes it worse; lower learner.lr, or raise kl.coef"
            )
    spreads = [of[name, "score_std"] for name in names if (name, "score_std") in of]
    if responses > 1 and spreads and not any(spreads):
        score = of[names[0], "task_reward"]
        warnings["constant evaluation"] = (
            f"every held-out response, the reference's too, has the same score, {score:g}: evaluations "
            "cannot tell policies apart; check the reward on the test split"
        )
    return warnings


def _all(rows: Sequence[Row], seat: str, quantity: str, value: float) -> bool:
    """Whether a seat's quantity is logged and has this value in all rows."""
    values = seat_values(rows, seat, quantity)
    return bool(values) and all(other == value for other in values)


def seat_values(rows: Sequence[Mapping[str, float]], seat: str, quantity: str) -> list[float]:
    """A quantity of one seat row by row, whichever policy sat there."""
    return [
        value
        for row in rows
        for name, value in row.items()
        if name.startswith(f"{seat}/") and name.endswith(f"/{quantity}")
    ]
