"""The kinds of figures of the paper (arXiv:2410.06101), drawn from the metrics of any runs.

The paper plots means over the games of training, not held-out queries, with one standard deviation over
seeds; so do these figures. Imports no game and no model. Shapes: n runs (seeds), T iterations.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.evaluation import averaging, records
from cory.report.evaluation import pass_at_k_of_evaluation, pass_at_k_of_training
from cory.report.groups import (
    SINGLE,
    WINDOW,
    Group,
    Run,
    ablation,
    at_end,
    differing,
    families_of,
    is_complete,
    spread,
    training_curve,
    without,
    written,
)
from cory.report.plots import DASHES, MAIN, PALETTE, REFERENCE, Kind, Plot, draw_kinds, over_iterations
from cory.tracking.curves import policies
from cory.tracking.labels import label
from cory.tracking.tracker import Curve

TRAINING = (
    "Figure 3 of the paper (figures 4 and 7 to 10 have the same form). Means over the games of each "
    "iteration and over the seats; line and band: mean and standard deviation over seeds. CORY plays a game "
    "with every seat, so that its policies see more games per iteration than a single agent."
)
FRONTIER = (
    f"Figure 2c of the paper. Task reward against KL, means over the last {WINDOW} iterations of training; "
    "one point per KL coefficient, bars: standard deviation over seeds."
)
PASS_AT_K = (
    "Figure 5 and table 5 of the paper. The probability that at least one of k responses to a held-out query "
    "is correct; mean over policies and seeds, bars: standard deviation over seeds. Dashed: the reference."
)
ABLATIONS = (
    "Figure 6 of the paper: CORY, CORY without reading the other's response, CORY without role exchange, and "
    "single agents. Lines and bands as in the training curves."
)
COMPETITION = (
    "Appendix E.2 of the paper. A seat is paid its own score + λ times the scores of the others; "
    f"each policy over the last {WINDOW} iterations, mean and standard deviation over seeds."
)
NEEDS = {
    "training": "Figure 3 (training curves) needs runs with at least one iteration.",
    "frontier": "Figure 2c (frontier) needs runs that differ in kl.coef and the seed only.",
    "pass_at_k": "Figure 5 (pass@k) needs a task whose score is 1 or 0, and --evaluation.samples 2 or more.",
    "ablations": (
        "Figure 6 (ablations) needs a run with two seats or more, reading and role exchange, and one that "
        "differs in sees=none only, in exchange.every=0 only, or is a single agent of another model."
    ),
    "competition": "Appendix E.2 (cooperation to competition) needs runs that differ in payoff only.",
}
"""What the figures need, by their names."""


def draw(groups: Sequence[Group], folder: Path) -> tuple[list[Plot], list[str]]:
    """Draw what the groups have data for as `folder/*.png`; for each other figure a line on what it needs."""
    kinds: list[Kind[Sequence[Group]]] = [
        ("training", "Training curves", TRAINING, training),
        ("frontier", "Sub-optimal frontier", FRONTIER, frontier),
        ("pass_at_k", "pass@k", PASS_AT_K, pass_at_k),
        ("ablations", "Ablations", ABLATIONS, ablations),
        ("competition", "From cooperation to competition", COMPETITION, competition),
    ]
    plots = draw_kinds(kinds, groups, folder)
    drawn = {plot.path.stem for plot in plots}
    return plots, [needed for name, needed in NEEDS.items() if name not in drawn]


def training(groups: Sequence[Group]) -> Figure | None:
    """Draw task reward, KL and combined reward over the iterations."""
    return _training({group.name: group for group in groups})


def ablations(groups: Sequence[Group]) -> Figure | None:
    """Draw the training curves of CORY and of what lacks one of its parts."""
    for base in groups:
        found = {name: other for other in groups if (name := ablation(base.settings, other.settings))}
        if is_complete(base.settings) and any(name != SINGLE for name in found):
            return _training({"CORY": base, **found})
    return None


def frontier(groups: Sequence[Group]) -> Figure | None:
    """Draw task reward against KL, a line through the groups that differ in the KL coefficient only."""
    families = families_of(groups, "kl.coef")
    if all(len(family) < 2 for family in families):
        return None
    figure = Figure(figsize=(6.2, 4.6), layout="constrained")
    axes = figure.subplots()
    names = differing([without(family[0].settings, "kl.coef") for family in families])
    for i, family in enumerate(families):
        family.sort(key=lambda group: float(group.settings["kl.coef"]))
        kl, reward = (
            np.array([spread([at_end(run, q) for run in group.runs]) for group in family])
            for q in ("kl", "task_reward")
        )
        color = PALETTE[i % len(PALETTE)]
        name = written(family[0].settings, names) or "all runs"
        axes.errorbar(
            kl[:, 0], reward[:, 0], reward[:, 1], kl[:, 1], "o-", color=color, label=name, linewidth=1.2
        )
        for group, x, y in zip(family, kl[:, 0], reward[:, 0], strict=True):
            text = f"{group.settings['kl.coef']:g}"
            axes.annotate(text, (x, y), (4, 5), textcoords="offset points", fontsize=8, color=color)
    axes.set_xlabel(label("kl"))
    axes.set_ylabel(label("task_reward"))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def pass_at_k(groups: Sequence[Group]) -> Figure | None:
    """Draw pass@k over k: by `cory evaluate` if it measured all runs alike, else the last one in training."""
    measured = _measured_alike([run for group in groups for run in group.runs])
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    for i, group in enumerate(groups):
        points = [_pass_at_k(run, measured) for run in group.runs]
        for is_reference in (True, False):
            by_run = [_mean_by_k(one, is_reference=is_reference) for one in points]
            shown = sorted(set.intersection(*map(set, by_run))) if by_run else []
            if not shown or (is_reference and i):
                continue
            mean, sd = np.array([spread([one[k] for one in by_run]) for k in shown]).T
            color, line, name = (
                (REFERENCE, "--", "reference")
                if is_reference
                else (PALETTE[i % len(PALETTE)], "-", group.name)
            )
            axes.errorbar(shown, mean, sd, color=color, linestyle=line, marker="o", label=name)
            axes.set_xticks(shown)
    if not axes.containers:
        return None
    axes.set_xlabel("k")
    axes.set_ylabel("pass@k (share of queries)")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def competition(groups: Sequence[Group]) -> Figure | None:
    """Draw task reward and KL of each policy over the weight of the others' scores."""
    weighted = [group for group in groups if group.weight is not None]
    family = max(families_of(weighted, "payoff"), key=len, default=[])
    family.sort(key=lambda group: group.weight or 0.0)
    if len({group.weight for group in family}) < 2:
        return None
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    names = [name for name in policies(family[0].runs[0].curves) if name != averaging.NAME]
    for axes, quantity in zip(figure.subplots(1, 2), ("task_reward", "kl"), strict=True):
        for i, name in enumerate(names):
            points = [spread([at_end(run, quantity, name) for run in group.runs]) for group in family]
            mean, sd = np.array(points).T
            style = {"color": PALETTE[i % len(PALETTE)], "linestyle": DASHES[i % len(DASHES)]}
            axes.errorbar([group.weight for group in family], mean, sd, marker="o", label=name, **style)
        axes.set_xlabel("λ, weight of the others' scores")
        axes.set_ylabel(label(quantity))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _training(groups: Mapping[str, Group]) -> Figure | None:
    """Draw a panel per quantity with a line and a band per group."""
    kl_coef = float(next(iter(groups.values())).settings["kl.coef"])
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, quantity in zip(figure.subplots(1, len(MAIN)), MAIN, strict=True):
        for i, (name, group) in enumerate(groups.items()):
            found = [training_curve(run.curves, quantity, kl_coef=kl_coef) for run in group.runs]
            _draw_band(axes, found, name=name, place=i)
        over_iterations(axes)
        axes.set_ylabel(label(quantity))
    if not axes.lines:
        return None
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_band(axes: Axes, found: Sequence[Curve], *, name: str, place: int) -> None:
    """Draw mean and standard deviation over runs at the iterations that all of them have."""
    times = sorted(set.intersection(*(set(curve.iterations) for curve in found)))
    if not times:
        return
    values_nT = np.array([[dict(zip(*curve, strict=True))[time] for time in times] for curve in found])
    mean_T, sd_T = np.array([spread(column) for column in values_nT.T]).T
    turn, colour = divmod(place, len(PALETTE))
    axes.plot(times, mean_T, color=PALETTE[colour], linestyle=DASHES[turn % len(DASHES)], label=name)
    axes.fill_between(times, mean_T - sd_T, mean_T + sd_T, color=PALETTE[colour], alpha=0.15, linewidth=0)


def _measured_alike(runs: Sequence[Run]) -> str | None:
    """What `cory evaluate` measured pass@k by in every run; None if there is no such measurement."""
    found = [
        {records.describe(one["measured"]) for one in run.evaluations if pass_at_k_of_evaluation(one)}
        for run in runs
    ]
    return min(set.intersection(*found), default=None)


def _pass_at_k(run: Run, measured: str | None) -> dict[str, dict[int, float]]:
    """pass@k by policy and k."""
    if measured is None:
        points = pass_at_k_of_training(run.curves)
    else:
        of = next(one for one in run.evaluations if records.describe(one["measured"]) == measured)
        points = pass_at_k_of_evaluation(of)
    return {name: {k: value for k, (value, *_) in by_k.items()} for name, by_k in points.items()}


def _mean_by_k(points: Mapping[str, Mapping[int, float]], *, is_reference: bool) -> dict[int, float]:
    """Mean over the trained policies, or over the references."""
    of = [
        by_k
        for name, by_k in points.items()
        if name.startswith("reference") == is_reference and name != averaging.NAME
    ]
    return {k: float(np.mean([one[k] for one in of])) for k in (of[0] if of else ())}
