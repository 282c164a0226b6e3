"""Tables of an evaluation summary with intervals, for the terminal and the report page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cory.tracking.labels import in_order

FILE_WIDTH = 200
"""Columns of text if the output is not a terminal; wide, so that rows do not wrap."""

IN_GAME = (
    "task_reward", "accuracy", "probability", "second_judge", "payoff", "kl", "kl_per_token",
    "combined_reward", "length", "eos_share", "repetition", "distinct_2", "reference_perplexity",
)  # fmt: skip
"""Quantities in the table of the seats; the JSON has all."""


class Table(NamedTuple):
    """A table of texts; the first cell of a row is its name."""

    title: str
    head: list[str]
    rows: list[list[str]]


def print_tables(result: Mapping[str, Any]) -> None:
    """Print all tables and remarks of an evaluation summary."""
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console = console if console.is_terminal else Console(width=FILE_WIDTH)
    for table in make_tables(result):
        printed = rich_table.Table(title=table.title, title_justify="left", title_style="bold")
        for i, name in enumerate(table.head):
            printed.add_column(Text(name), justify="right" if i else "left")
        for row in table.rows:
            printed.add_row(*map(Text, row))
        console.print(printed)
    for line in remarks(result):
        console.print(line, markup=False)


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return lines on data left out, signs of collapse and judge failures."""
    lines = [f"{line}." for line in result["data"]["left_out"]]
    lines += [f"Signs of collapse: {'; '.join(result['collapse_signs'])}."]
    lines += [f"{name}: {'; '.join(signs) or 'none'}" for name, signs in result["collapse"].items()]
    return lines + [f"judge {row['judge']} failed: {row['failure']}" for row in result["failures"]]


def make_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the tables of an evaluation summary, without empty ones."""
    metrics, games = result["metrics"], result["in_game"]
    quantities = in_order(quantity for of_policy in metrics.values() for quantity in of_policy)
    game_metrics, game_intervals = (
        {name: of_seat[part] for name, of_seat in games.items()} for part in ("metrics", "intervals")
    )
    gains, diversity, comparison = (result[p] for p in ("gain_over_reference", "diversity", "comparison"))
    tables = [
        _table(
            f"standalone: {_conditions(result)}",
            quantities,
            metrics,
            _metric_cell(metrics, result["intervals"]),
        ),
        _table(
            "gain over the reference, query by query", quantities, gains, _estimate_cell(gains, "gain", "+")
        ),
        _table("in the game", IN_GAME, games, _metric_cell(game_metrics, game_intervals)),
        _table(
            "two responses to the same query",
            ("differing", "ngram_distance"),
            diversity,
            _estimate_cell(diversity),
        ),
        _table("differences, query by query", quantities, comparison, _estimate_cell(comparison, sign="+")),
    ]
    return [table for table in tables if table.rows]


def _conditions(result: Mapping[str, Any]) -> str:
    """Return queries, samples, sampling, KL coefficient and threshold in one line."""
    samples = "" if result["samples"] == 1 else f" x {result['samples']} samples"
    correct = "" if result["threshold"] is None else f", correct from a reward of {result['threshold']:g}"
    return (
        f"{result['queries']} of {result['data']['test']} held-out queries{samples}, "
        f"{result['sampling']} sampling, "
        f"KL coefficient {result['kl_coef']:g}{correct}; 95 % intervals"
    )


def cell(value: float | None, low: float | None, high: float | None, *, sign: str = "") -> str:
    """Format a number and its interval; a dash if there is none."""
    if value is None or low is None or high is None:
        return "-"
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _metric_cell(
    metrics: Mapping[str, Mapping[str, Any]], intervals: Mapping[str, Mapping[str, Any]]
) -> Callable[[str, str], str]:
    """Return a function (name, quantity) -> cell."""
    return lambda name, quantity: cell(
        metrics[name].get(quantity), *intervals[name].get(quantity, (None, None))
    )


def _estimate_cell(
    estimates: Mapping[str, Mapping[str, Any]], value: str = "value", sign: str = ""
) -> Callable[[str, str], str]:
    """Return a function (name, quantity) -> cell; `value` is the key of the number."""

    def format_cell(name: str, quantity: str) -> str:
        estimate = estimates[name].get(quantity)
        if estimate is None:
            return "-"
        return cell(estimate[value], estimate["low"], estimate["high"], sign=sign)

    return format_cell


def _table(
    title: str, quantities: Sequence[str], names: Mapping[str, Any], format_cell: Callable[[str, str], str]
) -> Table:
    """Make a table with a column per name and a row per quantity that any of them has."""
    rows = [[quantity, *(format_cell(name, quantity) for name in names)] for quantity in quantities]
    return Table(title, ["", *names], [row for row in rows if any(text != "-" for text in row[1:])])
