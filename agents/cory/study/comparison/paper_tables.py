"""The kinds of tables of the paper (arXiv:2410.06101), read off any runs: settings, pass@k and samples."""

from collections.abc import Sequence

from cory.evaluation import averaging
from cory.report.tables import Table
from cory.study.comparison.arms import Arm
from cory.study.comparison.paper import pass_at_k_points

SETTINGS = (
    *("policy.model", "policy.kind", "lora.four_bit", "seats", "sees", "payoff", "exchange.every"),
    *("algorithm", "learner.lr", "batch", "learner.minibatch", "learner.microbatches", "algorithm.epochs"),
    *("iterations", "kl.coef", "kl.kind", "kl.place", "algorithm.gamma", "algorithm.lam", "algorithm.clip"),
    *("algorithm.value_clip", "algorithm.value_coef", "algorithm.whiten", "payoff_scaling.scaling"),
    *("task.max_query", "max_response"),
)
"""What tables 1 and 2 list, and what makes CORY of PPO."""
QUERIES = 3


def make(arms: Sequence[Arm]) -> list[Table]:
    """The tables that the arms have data for."""
    tables = (settings(arms), pass_at_k(arms), samples(arms))
    return [table for table in tables if table.rows]


def settings(arms: Sequence[Arm]) -> Table:
    """The settings of the arms side by side."""
    rows = [
        [name, *(str(arm.settings.get(name, "-")) for arm in arms)]
        for name in SETTINGS
        if any(name in arm.settings for arm in arms)
    ]
    head = ["setting", *(arm.name for arm in arms)]
    return Table("Settings", head, rows, kind="runs", note="Tables 1 and 2 of the paper.")


def pass_at_k(arms: Sequence[Arm]) -> Table:
    """The numbers of the figure of pass@k."""
    points = pass_at_k_points(arms)
    ks = sorted({k for by_k in points.values() for k in by_k})
    rows = []
    for name, by_k in points.items():
        spread = {k: f" ± {high - mean:.3f}" if high > mean else "" for k, (mean, _, high) in by_k.items()}
        rows.append([name, *(f"{by_k[k][0]:.3f}{spread[k]}" if k in by_k else "-" for k in ks)])
    note = "Table 5 of the paper. Mean over policies and seeds ± one standard deviation over seeds, held-out."
    return Table("pass@k in numbers", ["arm", *(f"pass@{k}" for k in ks)], rows, note=note)


def samples(arms: Sequence[Arm]) -> Table:
    """Held-out responses of each policy at the last evaluation of each arm's run with the smallest seed."""
    columns: dict[str, dict[str, str]] = {}
    for arm in arms:
        games = arm.samples
        for row in (row for row in games if row["iteration"] == games[-1]["iteration"]):
            for policy, response in row["eval"].items():
                if policy != averaging.NAME:
                    name = "reference" if policy == "reference" else f"{arm.name}, {policy}"
                    columns.setdefault(name, {}).setdefault(row["query"], response.strip())
    shared = set.intersection(*map(set, columns.values())) if columns else set()
    queries = [query for query in next(iter(columns.values()), {}) if query in shared]
    rows = [[query, *(by_query[query] for by_query in columns.values())] for query in queries[:QUERIES]]
    note = "Held-out queries, each policy standalone; the reference is the first arm's."
    return Table("Responses", ["query", *columns], rows, kind="samples", note=note)
