"""Whether a run learned, in a sentence, and its alerts, computed again from its metrics."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cory.report import html
from cory.report.summary import number
from cory.tracking import early_alerts
from cory.tracking.curves import Curves, policies
from cory.tracking.tracker import NO_CURVE, Key


def sections(
    rows: Sequence[Mapping[str, float]],
    curves: Curves,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> list[html.Markup]:
    """Return the sentence, and a line for each alert with the iteration that raised it first."""
    responses = environment.get("data", {}).get("evaluated", 0) * int(config.get("evaluation.samples", 1))
    sentence = learned(curves, responses)
    alerts = [html.alert(text) for text in raised(rows, config, responses)]
    return ([html.paragraph(sentence)] if sentence else []) + alerts


def learned(curves: Curves, responses: int) -> str | None:
    """Return whether held-out combined reward has risen, by two standard errors, since the first evaluation.

    The errors are those of `responses` per evaluation of one policy, in the mean over the policies.
    """
    pairs, variances = [], []
    for name in policies(curves):
        values = curves.get(Key("eval", name, "combined_reward"), NO_CURVE).values
        spreads = curves.get(Key("eval", name, "score_std"), NO_CURVE).values
        if len(values) > 1 and len(spreads) > 1:
            pairs.append((values[0], values[-1]))
            variances.append((spreads[0] ** 2 + spreads[-1] ** 2) / max(responses, 1))
    if not pairs:
        return None
    if responses < early_alerts.FEW:
        return (
            f"Too few to tell: {responses} held-out responses of each policy; give data with at least "
            f"{early_alerts.FEW} held-out queries."
        )
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    margin = 2 * math.sqrt(sum(variances)) / len(pairs)
    verdict = "Undecided"
    if abs(after - before) > margin:
        verdict = "Learned" if after > before else "Worse than at the start"
    change = f"{number([before])} → {number([after])}"
    return (
        f"{verdict}: held-out combined reward, mean of the policies, {change} ({after - before:+.3f}, two "
        f"standard errors are {margin:.3f})."
    )


def raised(rows: Sequence[Mapping[str, float]], config: Mapping[str, Any], responses: int) -> list[str]:
    """Return the alerts of a run, each once, with the iteration that raised it first."""
    found: dict[str, str] = {}
    low, high = config.get("max_response", (0, 1))
    ends = low == high and config.get("policy.kind") != "table"
    played: list[Mapping[str, float]] = []
    for logged in rows:
        row = {name: value for name, value in logged.items() if name != "iteration"}
        if "time/update/seconds" in row:
            played.append(row)
            warnings = early_alerts.training(played, ends=ends)
        else:
            warnings = early_alerts.evaluation(row, responses=responses)
        for name, text in warnings.items():
            found.setdefault(name, f"Iteration {logged['iteration']:.0f}: {text}.")
    return list(found.values())
