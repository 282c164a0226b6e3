"""What the page of a study or a comparison says first: objective, collapse, cooperation."""

from collections.abc import Mapping
from typing import Any

from cory.report import html
from cory.study import statistics, suite, survival
from cory.study.analysis import judged_by_team, runs_of, values_by_seed
from cory.study.metric import Metric
from cory.study.plan import payoff_weight
from cory.study.plots.payoff import collective_by_payoff
from cory.study.records import references
from cory.study.results import Results

NEUTRAL = ("kl", "kl_per_token", "repetition", "reference_perplexity", "length", *survival.METRICS)
"""Quantities of which more is not better."""

FEW = 0.1
"""Share of collapsed policies up to which a study is not called collapsed."""


def badges(results: Results) -> html.Markup:
    """Verdicts if claims were declared, arms whose objective rose, signs of collapse, and cooperation."""
    rows: list[tuple[str, str, str] | None] = [*suite.badge(results)]
    declared = [row["result"] for row in results["statistics"] if row["n"] and row["claim"]]
    if results["verdicts"]:
        counts = {word: declared.count(word) for word in ("supported", "refuted", "undecided")}
        text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        rows.append(("claims", text or "no runs yet", "open"))
    if not judged_by_team(results):
        rows.append(_objective(results))
    ends = [at for run in results["runs"] for at in run["collapsed_at"].values()]
    signs = sum(at is not None for at in ends)
    if ends:
        text = f"signs in {signs} of {len(ends)} policies" if signs else "no sign"
        tone = "bad" if signs > FEW * len(ends) else "open"
        rows.append(("collapse", text, tone if signs else "good"))
    rows.append(None if results.get("suite") else _cooperation(results))
    return html.Markup(html.badges([row for row in rows if row]))


def payoff_lines(results: Results) -> list[str]:
    """What a sweep over the payoff found, a sentence for each task."""
    lines = []
    for task in results["kl_coef"]:
        if len(by := collective_by_payoff(results, task)) > 1:
            means = {at: sum(values) / len(values) for at, values in by.items()}
            (low, first), *_, (high, last) = means.items()
            best = max(means, key=lambda at: means[at])
            where = f"; it is highest at λ = {best:g} ({means[best]:.3f})" if best != high else ""
            lines.append(
                f"From λ = {low:g} to {high:g} the collective reward on {task} goes from {first:.3f} to "
                f"{last:.3f}{where}."
            )
    return lines


def _objective(results: Results) -> tuple[str, str, str] | None:
    """In how many arms and tasks the combined reward rose above the reference, by its interval."""
    verdicts, known = [], 0
    for task in results["kl_coef"]:
        for arm in results["arms"]:
            of_references = [one for run in runs_of(results, task, arm) for one in references(run["eval"])]
            starts = [one["task_reward"][0][1] for one in of_references]
            values = list(values_by_seed(results, arm, task, "combined_reward").values())
            if starts and values:
                low, high = statistics.interval(values)
                start = sum(starts) / len(starts)
                verdicts.append("up" if low > start else "down" if high < start else "undecided")
                known += low == low
    if not known:
        return ("objective", "too few seeds", "open") if verdicts else None
    up, down = verdicts.count("up"), verdicts.count("down")
    places = "arms" if len(results["kl_coef"]) == 1 else "arms and tasks"
    text = f"up in {up} of {len(verdicts)} {places}" + (f", down in {down}" if down else "")
    return "objective", text, "bad" if down > up else "good" if up == len(verdicts) else "open"


def _cooperation(results: Results) -> tuple[str, str, str] | None:
    """The first comparison of several seats with one, or of a higher weight of the others' scores."""
    turned = [
        {**row, "arm": row["baseline"], "baseline": row["arm"], "difference": -row["difference"]}
        | {"low": row["high"] and -row["high"], "high": row["low"] and -row["low"]}
        for row in results["statistics"]
        if row["n"] and not row["baseline_metric"]
    ]
    for row in [*results["statistics"], *turned]:
        if row["n"] and _is_of_cooperation(results, row):
            text = f"{row['arm']} - {row['baseline']} {row['difference']:+.3f}"
            if row["low"] is None:
                return "cooperation", f"{text}, too few seeds", "open"
            tone = "good" if row["low"] > 0 else "bad" if row["high"] < 0 else "open"
            return "cooperation", f"{text} ({row['low']:+.3f} to {row['high']:+.3f})", tone
    return "cooperation", "not compared", "open"


def _is_of_cooperation(results: Results, row: Mapping[str, Any]) -> bool:
    sides = [
        results["arms"].get(row[side], {}).get("config", {}).get(row["task"]) for side in ("arm", "baseline")
    ]
    metric = Metric.named(row["metric"])
    if None in sides or row["baseline_metric"] or metric.place == "apart" or metric.quantity in NEUTRAL:
        return False
    arm, baseline = sides
    more, less = payoff_weight(arm), payoff_weight(baseline)
    if arm["seats"] > 1 and baseline["seats"] == 1:
        return more is None or more > 0  # a payoff that is no number, such as `best`, is for others too
    others = {name for name in arm if arm[name] != baseline.get(name)} - {"payoff"}
    return more is not None and less is not None and more > less and not others
