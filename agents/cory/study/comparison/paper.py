"""The kinds of figures of the paper (arXiv:2410.06101), drawn from the metrics of any runs.

The paper plots means over the games of training, not held-out queries, with one standard deviation over
seeds; so do these figures: those of a study, of results that have training games in the place of evaluations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cory.evaluation import averaging
from cory.evaluation.records import differing, written
from cory.report import figures
from cory.report.figures import Kind, Plot, draw_kinds
from cory.report.plots import pass_at_k_of
from cory.runtime.provenance import LEARNING_VERSION
from cory.study.comparison.arms import SINGLE, Arm, ablation, as_study, families_of
from cory.study.plan import payoff_weight, setting_value
from cory.study.plots.curves import draw_curves, draw_sweeps
from cory.study.plots.frontier import draw_frontier
from cory.study.records import Points, references, trained
from cory.study.results import Results
from cory.study.spec import Sweep
from cory.tracking.curves import Curves, policies, seats
from cory.tracking.tracker import Key

WINDOW = 5
"""Iterations at the end of training that stand for its result."""

TRAINING = (
    "Figure 3 of the paper (figures 4 and 7 to 10 have the same form). Each policy in the games of each "
    "iteration, in whichever seat; line and band: mean and standard deviation over seeds. CORY plays a game "
    "with every seat, so that its policies see more games per iteration than a single agent."
)
FRONTIER = (
    f"Figure 2c of the paper. Task reward against KL, means over the last {WINDOW} iterations of training; "
    "small points: runs, large points: their means, joined in the order of the KL coefficient beside them."
)
PASS_AT_K = (
    "Figure 5 and table 5 of the paper. The probability that at least one of k responses to a held-out query "
    "is correct; mean over policies and seeds, band: standard deviation over seeds. Dashed: the reference."
)
ABLATIONS = (
    "Figure 6 of the paper: CORY, CORY without reading the other's response, CORY without role exchange, and "
    "single agents. Lines and bands as in the training curves."
)
COMPETITION = (
    "Appendix E.2 of the paper. A seat is paid its own score + λ times the scores of the others; "
    f"each policy over the last {WINDOW} iterations, dots: runs."
)
COMPETING = "Appendix E.2 of the paper, over the iterations. Lines and bands as in the training curves."
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

Evaluated = dict[str, dict[str, Points]]
Arms = Sequence[Arm]
Lines = Mapping[str, tuple[Arm, str | None]]
"""Lines of a figure by name: an arm, and the policy whose games count; without a policy those of all."""


def draw(arms: Arms, folder: Path) -> tuple[list[Plot], list[str]]:
    """Draw what the arms have data for as `folder/*.png`; for each other figure a line on what it needs."""
    kinds: list[Kind[Arms]] = [
        ("training", "Training curves", TRAINING, training),
        ("frontier", "Sub-optimal frontier", FRONTIER, frontier),
        ("pass_at_k", "pass@k", PASS_AT_K, pass_at_k),
        ("ablations", "Ablations", ABLATIONS, ablations),
        ("competition", "From cooperation to competition", COMPETITION, competition),
        ("competing", "From cooperation to competition over the iterations", COMPETING, competing),
    ]
    plots = draw_kinds(kinds, arms, folder)
    drawn = {plot.path.stem for plot in plots}
    return plots, [needed for name, needed in NEEDS.items() if name not in drawn]


def training(arms: Arms) -> Figure | None:
    """Draw task reward, KL and combined reward of each policy over the iterations."""
    lines = _lines(arms)
    return draw_curves(_results(lines, over_iterations), spread=deviation) if lines else None


def ablations(arms: Arms) -> Figure | None:
    """Draw the training curves of CORY and of what lacks one of its parts."""
    for base in arms:
        others = {name: arm for arm in arms if (name := ablation(base.settings, arm.settings))}
        settings = base.settings
        is_whole = settings["seats"] > 1 and settings["sees"] != "none" and settings["exchange.every"]
        if is_whole and any(name != SINGLE for name in others):
            return training([replace(arm, name=name) for name, arm in {"CORY": base, **others}.items()])
    return None


def frontier(arms: Arms) -> Figure | None:
    """Draw task reward against KL, a line through the arms that differ in the KL coefficient only."""
    families = [family for family in families_of(arms, "kl.coef") if len(family) > 1]
    names = [name for name in differing([family[0].settings for family in families]) if name != "kl.coef"]
    sweeps = {
        written(family[0].settings, names) or "all runs": Sweep(
            setting="kl.coef", arms=tuple(arm.name for arm in family)
        )
        for family in families
    }
    lines: Lines = {arm.name: (arm, None) for arm in arms}
    return draw_frontier(_results(lines, at_end, sweeps)) if sweeps else None


def competition(arms: Arms) -> Figure | None:
    """Draw task reward and KL of each policy over the weight of the others' scores."""
    lines = _lines(_weighted(arms))
    by_policy: dict[str | None, list[str]] = {}
    for line, (_, policy) in lines.items():
        by_policy.setdefault(policy, []).append(line)
    sweeps = {str(policy): Sweep(setting="payoff", arms=tuple(names)) for policy, names in by_policy.items()}
    return draw_sweeps(_results(lines, at_end, sweeps)) if lines else None


def competing(arms: Arms) -> Figure | None:
    """Draw task reward and KL of each policy and weight over the iterations."""
    return training(_weighted(arms))


def pass_at_k(arms: Arms) -> Figure | None:
    """Draw pass@k over k, of the last evaluation in training."""
    return figures.grid([pass_at_k_points(arms)], figures.pass_at_k)


def pass_at_k_points(arms: Arms) -> dict[str, dict[int, tuple[float, float, float]]]:
    """The reference and each arm by k: the mean over policies and runs, and one deviation below and above."""
    points: dict[str, dict[int, tuple[float, float, float]]] = {}
    for arm in arms:
        runs = [pass_at_k_of(metrics) for metrics in arm.metrics.values()]
        policies_of = {
            "reference": [references(run) for run in runs],
            arm.name: [[run[name] for name in trained(run)] for run in runs],
        }
        for name, of_runs in policies_of.items():
            shared = set.intersection(*(set(of_run[0] if of_run else ()) for of_run in of_runs))
            for k in sorted(shared):
                values_n = np.array([np.mean([by_k[k][0] for by_k in of_run]) for of_run in of_runs])
                low, high = deviation(values_n)
                points.setdefault(name, {}).setdefault(k, (float(values_n.mean()), float(low), float(high)))
    return points


def over_iterations(metrics: Curves, policy: str | None = None) -> Evaluated:
    """Task reward and KL in each iteration, mean over all seats or over those of one policy."""
    values: dict[str, dict[float, list[float]]] = {}
    for key, curve in metrics.items():
        learns = Key(key.place, key.policy, "kl") in metrics  # the seat of a player has none
        counts = key.place in seats(metrics) and key.quantity in ("task_reward", "kl") and learns
        if counts and policy in (None, key.policy):
            for iteration, value in zip(*curve, strict=True):
                values.setdefault(key.quantity, {}).setdefault(iteration, []).append(value)
    means = {
        quantity: [[i, float(np.mean(by_iteration[i]))] for i in sorted(by_iteration)]
        for quantity, by_iteration in values.items()
    }
    return {"all": means} if means else {}


def at_end(metrics: Curves, policy: str | None = None) -> Evaluated:
    """Means of task reward and KL over the last `WINDOW` iterations, of all seats or of one policy."""
    return {
        name: {
            quantity: [[points[-1][0], float(np.mean([value for _, value in points[-WINDOW:]]))]]
            for quantity, points in quantities.items()
        }
        for name, quantities in over_iterations(metrics, policy).items()
    }


def deviation(values_n: np.ndarray) -> tuple[Any, Any]:
    """One standard deviation below and above the mean of runs; of one run, its value twice."""
    mean, spread = values_n.mean(0), values_n.std(0, ddof=1) if len(values_n) > 1 else 0.0
    return mean - spread, mean + spread


def _lines(arms: Arms) -> Lines:
    """A line for each policy of an arm, LLM1 and LLM2 of the paper; it has the arm's name if it is alone."""
    lines: dict[str, tuple[Arm, str | None]] = {}
    for arm in arms:
        names = dict.fromkeys(policy for metrics in arm.metrics.values() for policy in policies(metrics))
        names.pop(averaging.NAME, None)
        alone = len(names) == 1
        lines |= {arm.name if alone else f"{arm.name}, {policy}": (arm, policy) for policy in names}
    return lines


def _results(
    lines: Lines,
    evaluated: Callable[[Curves, str | None], Evaluated],
    sweeps: Mapping[str, Sweep] | None = None,
) -> Results:
    """Results of a study whose arms are the lines, with what training measured instead of evaluations."""
    rows = [
        {"arm": name, "task": str(arm.settings["task"]), "seed": seed, "eval": evaluated(metrics, policy)}
        | {"learning_version": LEARNING_VERSION}
        for name, (arm, policy) in lines.items()
        for seed, metrics in arm.metrics.items()
    ]
    return as_study([replace(arm, name=name) for name, (arm, _) in lines.items()], rows, sweeps=sweeps or {})


def _weighted(arms: Arms) -> list[Arm]:
    """The arms that differ in the weight of the others' scores only, by it; none if all have one."""
    fixed = [arm for arm in arms if not arm.settings.get("payoff.over")]
    weighted = [arm for arm in fixed if payoff_weight(arm.settings) is not None]
    family = max(families_of(weighted, "payoff"), key=len, default=[])
    weights = {arm.name: setting_value(arm.settings, "payoff") for arm in family}
    return sorted(family, key=lambda arm: weights[arm.name]) if len({*weights.values()}) > 1 else []
