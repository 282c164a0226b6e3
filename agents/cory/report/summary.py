"""The start of the report page: what changed, by how much, at what KL penalty, and whether it collapses."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.evaluation import averaging, collapse, records
from cory.report import html
from cory.report.evaluation import unlike_run
from cory.report.tables import cell
from cory.tracking.curves import Curves, policies, quantities
from cory.tracking.labels import label
from cory.tracking.tracker import NO_CURVE, Key, curves, read


def sections(run: Path, config: Mapping[str, Any], curves: Curves) -> list[html.Markup]:
    """Return a sentence on the change, one on collapse, and a card of figures for each policy."""
    parts = [html.heading("Summary", anchor="summary")]
    names = [name for name in policies(curves) if Key("eval", name, "task_reward") in curves]
    names.sort(key=lambda name: name == averaging.NAME)  # last: it is no policy of its own
    if not quantities(curves, ["eval"]):
        return [*parts, html.paragraph("This run has no held-out evaluation yet.")]
    if names:
        parts.append(html.paragraph(_sentence(curves, names)))
    signs = [f"{name}: {sign}" for name in names for sign in _collapse(curves, name)]
    parts += [html.alert(f"Sign of collapse, {sign}.") for sign in signs]
    compared = [sign for sign in collapse.SIGNS if all(_pair(curves, name, sign.quantity) for name in names)]
    if compared and not signs:
        signs_of = ", ".join(sign.quantity.replace("_", " ") for sign in compared)
        parts.append(html.paragraph(f"No sign of collapse in {signs_of} against the reference."))
    gains = _gains(run, config)
    eta = config.get("kl.coef")
    shown = [html.titled(name, html.definitions(_figures(curves, name, eta, gains))) for name in names]
    note = (
        "Each policy standalone on held-out queries: first evaluation → last evaluation, and the difference."
    )
    return [*parts, html.cards(shown), html.paragraph(note, muted=True)] if shown else parts


def headline(run: Path) -> list[str]:
    """Return what the summary of a run says: the change, and every sign of collapse; empty if unevaluated."""
    of_run = curves(read(run))
    names = [name for name in policies(of_run) if Key("eval", name, "task_reward") in of_run]
    if not names:
        return []
    signs = [f"Sign of collapse, {name}: {sign}." for name in names for sign in _collapse(of_run, name)]
    return [_sentence(of_run, names), *signs]


def _sentence(curves: Curves, names: Sequence[str]) -> str:
    """Return what happened to the main quantity, at what KL, after how many iterations."""
    quantity = next(
        (one for one in ("accuracy", "probability") if Key("eval", names[0], one) in curves), "task_reward"
    )
    changes = []
    for name in names:
        curve = curves.get(Key("eval", name, quantity), NO_CURVE)
        kl = curves.get(Key("eval", name, "kl"), NO_CURVE).values[-1:]
        at = f" at a KL of {number(kl)}" if kl else ""
        changes.append(f"{name} {change(curve.values[:1], curve.values[-1:])}{at}")
    last = max(curves[Key("eval", name, "task_reward")].iterations[-1] for name in names)
    return f"Held out, {label(quantity)} after {last} iterations: {'; '.join(changes)}."


def _figures(
    curves: Curves, name: str, eta: float | None, gains: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Return the rows of a policy's card."""

    def values(quantity: str) -> list[float]:
        return curves.get(Key("eval", name, quantity), NO_CURVE).values

    rows = [
        (label(quantity), change(found[:1], found[-1:]))
        for quantity in ("accuracy", "probability", "task_reward")
        if (found := values(quantity))
    ]
    if gain := gains.get(name, {}).get("task_reward"):
        estimate = cell(gain["gain"], gain["low"], gain["high"], sign="+")
        rows.append(("gain over the reference, 95 % interval", estimate))
    if kl := values("kl"):
        rows.append((label("kl"), number(kl[-1:])))
        if eta is not None:
            rows.append((f"KL penalty (η = {eta:g})", number([eta * kl[-1]])))
    if combined := values("combined_reward"):
        rows.append((label("combined_reward"), change(combined[:1], combined[-1:])))
    if distinct := values("distinct_2"):
        reference = _reference(curves, name, "distinct_2")
        beside = f" (reference {number(reference[-1:])})" if reference else ""
        rows.append((label("distinct_2"), number(distinct[-1:]) + beside))
    return rows


def _collapse(curves: Curves, name: str) -> list[str]:
    """Return the signs of collapse in the last evaluation of a policy."""
    pairs = {sign: _pair(curves, name, sign.quantity) for sign in collapse.SIGNS}
    return [
        f"{label(sign.quantity)} is {sign.definition}: {number(pair[:1])}, {number(pair[1:])}"
        for sign, pair in pairs.items()
        if pair and sign.present(*pair)
    ]


def _pair(curves: Curves, name: str, quantity: str) -> list[float]:
    """Return a quantity of a policy and of its reference in the last evaluation; empty if one has none."""
    ours = curves.get(Key("eval", name, quantity), NO_CURVE).values[-1:]
    pair = [*ours, *_reference(curves, name, quantity)[-1:]]
    return pair if len(pair) == 2 and all(map(math.isfinite, pair)) else []


def _reference(curves: Curves, name: str, quantity: str) -> list[float]:
    """Return a quantity of the reference of a policy: its own, where policies start from several models."""
    common = curves.get(Key("eval", "reference", quantity), NO_CURVE)
    return curves.get(Key("eval", f"reference_{name}", quantity), common).values


def _gains(run: Path, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the gains with intervals that `cory evaluate` found with the run's own settings."""
    own = (one for one in records.read_all(run) if not unlike_run(one, config))
    found: Mapping[str, Mapping[str, Any]] = next(own, {}).get("gain_over_reference", {})
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def number(values: Sequence[float]) -> str:
    """Format the mean of the finite values with three digits; a dash if there are none."""
    found = mean(values)
    if not math.isfinite(found):
        return "-"
    return f"{found:.3f}" if abs(found) < 1000 else f"{found:.3g}"


def change(first: Sequence[float], last: Sequence[float]) -> str:
    """Format two means and their difference."""
    by = mean(last) - mean(first)
    return f"{number(first)} → {number(last)}" + (f"  ({by:+.3f})" if math.isfinite(by) else "")
