"""The start of the report page: what changed, whether it is learning or chance, and signs of collapse."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from cory.evaluation import averaging, collapse
from cory.report import html
from cory.tracking import alerts
from cory.tracking.curves import Curves, policies, quantities
from cory.tracking.labels import label
from cory.tracking.tracker import NO_CURVE, Key, curves, read


def sections(
    rows: Sequence[Mapping[str, float]],
    curves: Curves,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> list[html.Markup]:
    """Sentences on change, learning and collapse, and the run's alerts, computed again from its metrics."""
    responses, names = queries_of(environment), _evaluated(curves)
    sentence = learned(curves, responses)
    parts = [html.paragraph(sentence)] if sentence else []
    if not names:
        text = "This run has no held-out evaluation yet."
        if quantities(curves, ["team"]):
            text = "Responses of this task are scored in games only: see the held-out games of the team."
        parts.append(html.paragraph(text))
    else:
        held_out, *signs = _lines(curves, names)
        parts += [html.paragraph(held_out), *map(html.alert, signs)]
        parts += [] if signs else [html.paragraph("No sign of collapse against the reference.")]
    return [
        html.heading("Summary", anchor="summary"),
        *parts,
        *map(html.alert, raised_alerts(rows, config, responses)),
    ]


BADGES = {
    "Learned": ("up", "good"),
    "Worse than at the start": ("down", "bad"),
    "Undecided": ("undecided", "open"),
    "Too few to tell": ("too few responses to tell", "open"),
}
"""What a badge says of each verdict of `outcome`, and its tone."""


def badges(
    curves: Curves, config: Mapping[str, Any], environment: Mapping[str, Any], run: Path
) -> list[html.Markup]:
    """What a reader asks first: did the objective rise, did a policy collapse, did cooperation help."""
    names, learning = _evaluated(curves), outcome(curves, queries_of(environment))
    rows = [("objective", "not evaluated yet", "open")]
    if learning is not None:
        text, tone = BADGES[learning.verdict]
        if learning.verdict != "Too few to tell":
            text += f", {number([learning.before])} → {number([learning.after])}"
        rows = [("objective", text, tone)]
    elif quantities(curves, ["team"]) and not names:
        rows = [("objective", "scored in games only", "open")]
    if names:
        collapsed = [name for name in names if _collapse(curves, name)]
        text, tone = (f"signs in {', '.join(collapsed)}", "bad") if collapsed else ("no sign", "good")
        if 0 < queries_of(environment) < alerts.FEW:
            text, tone = BADGES["Too few to tell"]
        rows.append(("collapse", text, tone))
    if int(config.get("seats", 1)) < 2 or not names:
        return [html.badges(rows)]
    rows.append(("cooperation", "not measured", "open"))
    of_seats = ("turns", "payoff.to", "policy.models", "sharing.same_view")
    if any(map(config.get, of_seats)) or any(name.startswith(("players.", "sees.")) for name in config):
        return [html.badges(rows)]  # by hand: several settings name seats or policies
    path, file, alone = (quote(str(one)) for one in (run, run / "config.yaml", f"{run}-alone"))
    command = (
        f"cory train --config {file} --seats 1 --payoff independent --exchange.every 0 --run {alone}\n"
        f"cory report {path} {alone}"
    )
    return [
        html.badges(rows),
        html.collapsible("What measures whether cooperation helped", html.command(command)),
    ]


def headline(run: Path) -> list[str]:
    """The change in a run's held-out evaluation, and every sign of collapse; empty if unevaluated."""
    of_run = curves(read(run))
    names = _evaluated(of_run)
    return _lines(of_run, names) if names else []


class Outcome(NamedTuple):
    """What became of held-out combined reward, mean of the policies."""

    verdict: str
    before: float
    after: float
    margin: float = math.nan
    """Two standard errors of the change; NaN with too few queries, or if a run has not logged its errors."""


def outcome(curves: Curves, queries: int) -> Outcome | None:
    """Whether held-out combined reward has risen, by two standard errors, since the first evaluation.

    The error is the mean of the policies' `gain_error`, which is at least that of their mean: they answer the
    same `queries`. None before the second evaluation, and where they are not finite.
    """
    points = []
    for name in (name for name in policies(curves) if name != averaging.NAME):
        values, errors = (
            curves.get(Key("eval", name, quantity), NO_CURVE).values
            for quantity in ("combined_reward", "gain_error")
        )
        ends = (*values[:1], *values[-1:], *errors[-1:])
        if len(values) > 1 and all(map(math.isfinite, ends)):
            points.append((values[0], values[-1], 2 * errors[-1] if errors else math.nan))
    if not points:
        return None
    before, after, margin = (sum(side) / len(points) for side in zip(*points, strict=True))
    if queries < alerts.FEW:
        return Outcome("Too few to tell", before, after)
    if math.isnan(margin) or abs(after - before) <= margin:
        return Outcome("Undecided", before, after, margin)
    return Outcome("Learned" if after > before else "Worse than at the start", before, after, margin)


def learned(curves: Curves, queries: int) -> str | None:
    """The outcome in a sentence."""
    learning = outcome(curves, queries)
    if learning is None:
        return None
    if queries < alerts.FEW:
        return f"{learning.verdict}: {queries} held-out queries; give data with at least {alerts.FEW}."
    error = "not recorded" if math.isnan(learning.margin) else f"{learning.margin:.3f}"
    return (
        f"{learning.verdict}: held-out combined reward, mean of the policies, "
        f"{change([learning.before], [learning.after])}; two standard errors are {error}."
    )


def raised_alerts(rows: Sequence[Mapping[str, float]], config: Mapping[str, Any], queries: int) -> list[str]:
    """The alerts of a run, each once, with the iteration that raised it first."""
    raised: dict[str, str] = {}
    low, high = config.get("max_response", (0, 1))
    ends = low == high and config.get("policy.kind") != "table"
    played: list[Mapping[str, float]] = []
    for logged in rows:
        row = {name: value for name, value in logged.items() if name != "iteration"}
        if "time/update/seconds" in row:
            played.append(row)
            missed = int(logged["iteration"]) + 1 - len(played)
            warnings = alerts.training(played, missed=missed, ends=ends)
        else:
            warnings = alerts.evaluation(row, queries=queries)
        for name, text in warnings.items():
            raised.setdefault(name, f"Iteration {logged['iteration']:.0f}: {text}.")
    return list(raised.values())


def queries_of(environment: Mapping[str, Any]) -> int:
    """Held-out queries of an evaluation."""
    return int(environment.get("data", {}).get("evaluated", 0))


def _evaluated(curves: Curves) -> list[str]:
    """The policies with standalone evaluations, the mean of their weights last."""
    names = [name for name in policies(curves) if Key("eval", name, "task_reward") in curves]
    return sorted(names, key=lambda name: name == averaging.NAME)


def _lines(curves: Curves, names: Sequence[str]) -> list[str]:
    """What happened to the main quantity, at what KL, after how many iterations; and signs of collapse."""
    main = ("accuracy", "probability", "task_reward")
    quantity = next(name for name in main if Key("eval", names[0], name) in curves)
    changes = []
    for name in names:
        curve = curves.get(Key("eval", name, quantity), NO_CURVE)
        kl = curves.get(Key("eval", name, "kl"), NO_CURVE).values[-1:]
        at = f" at a KL of {number(kl)}" if kl else ""
        changes.append(f"{name} {change(curve.values[:1], curve.values[-1:])}{at}")
    last = max(curves[Key("eval", name, "task_reward")].iterations[-1] for name in names)
    signs = [f"Sign of collapse, {name}: {sign}." for name in names for sign in _collapse(curves, name)]
    return [f"Held out, {label(quantity)} after {last} iterations: {'; '.join(changes)}.", *signs]


def _collapse(curves: Curves, name: str) -> list[str]:
    """The signs of collapse in the last evaluation of a policy, against its own or the common reference."""
    signs = []
    for sign in collapse.SIGNS:
        common = curves.get(Key("eval", "reference", sign.quantity), NO_CURVE)
        reference = curves.get(Key("eval", f"reference_{name}", sign.quantity), common).values[-1:]
        ours = curves.get(Key("eval", name, sign.quantity), NO_CURVE).values[-1:]
        if ours and reference and sign.present(ours[0], reference[0]):
            signs.append(f"{label(sign.quantity)} is {sign.definition}: {number(ours)}, {number(reference)}")
    return signs


def mean(values: Sequence[float]) -> float:
    """The mean of the finite values; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def number(values: Sequence[float]) -> str:
    """The mean of the finite values with three digits; a dash if there are none."""
    value = mean(values)
    if not math.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def change(first: Sequence[float], last: Sequence[float]) -> str:
    """Two means and their difference."""
    by = mean(last) - mean(first)
    return f"{number(first)} → {number(last)}" + (f"  ({by:+.3f})" if math.isfinite(by) else "")
