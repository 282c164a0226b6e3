"""Tables of an evaluation summary with intervals, for the terminal and the report page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cory.evaluation.bootstrap import MIN_QUERIES
from cory.runtime.terminal import plain
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


def print_tables(tables: Sequence[Table], remarks: Sequence[str], *, width: int | None = None) -> None:
    """Print tables, then remarks, by default as wide as the terminal.

    A table that is wider is printed as several with the same first column, so that no cell is cut.
    """
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width)
    console = console if width or console.is_terminal else Console(width=FILE_WIDTH)
    for table in tables:
        console.print(Text(plain(table.title), style="bold"))
        for part in split_columns(table, console.width):
            printed = rich_table.Table()
            for i, name in enumerate(part.head):
                printed.add_column(Text(plain(name)), justify="right" if i else "left", overflow="fold")
            for row in part.rows:
                printed.add_row(*(Text(plain(cell)) for cell in row))
            console.print(printed)
    for line in remarks:
        console.print(Text(plain(line)))


def split_columns(table: Table, width: int) -> list[Table]:
    """Split a table into tables of at most `width` columns of text that share the first column.

    Each has as many columns as fit, at least one; frames and margins take three columns of text each.
    """
    from rich.cells import cell_len

    columns = list(zip(table.head, *table.rows, strict=True))
    first, *widths = (max(map(cell_len, column)) + 3 for column in columns)
    groups: list[list[int]] = []
    used = width
    for i, needed in enumerate(widths, start=1):
        if used + needed > width:
            groups.append([])
            used = first + 1
        groups[-1].append(i)
        used += needed
    return [
        Table(
            table.title,
            [table.head[i] for i in (0, *group)],
            [[row[i] for i in (0, *group)] for row in table.rows],
        )
        for group in groups
    ]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return lines on missing intervals, data left out, signs of collapse and judge failures."""
    lines = []
    if result["queries"] < MIN_QUERIES:
        lines.append(f"[-]: no intervals, since there are fewer than {MIN_QUERIES} queries.")
    elif any(row[0] is not None and row[1] is None for row in _intervals(result)):
        lines.append(
            "[-]: no interval, since the value is at the edge of its range (a share of 0 or 1, a KL of 0)."
        )
    lines += [f"{line}." for line in result["data"]["left_out"]]
    lines += [f"Signs of collapse: {'; '.join(result['collapse_signs'])}."]
    lines += [f"{name}: {'; '.join(signs) or 'none'}" for name, signs in result["collapse"].items()]
    return lines + [f"judge {row['judge']} failed: {row['failure']}" for row in result["failures"]]


def _intervals(result: Mapping[str, Any]) -> Iterator[tuple[float | None, float | None]]:
    """Yield every value of a summary with the lower end of its interval."""
    games = result["in_game"]
    for metrics, intervals in (
        *((result["metrics"][name], result["intervals"][name]) for name in result["metrics"]),
        *((of_seat["metrics"], of_seat["intervals"]) for of_seat in games.values()),
    ):
        yield from ((value, intervals[quantity][0]) for quantity, value in metrics.items())
    for part, value in (("gain_over_reference", "gain"), ("diversity", "value"), ("comparison", "value")):
        for found in result[part].values():
            yield from ((estimate[value], estimate["low"]) for estimate in found.values())


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
    """Format a number and its interval, each of them a dash if there is none."""
    if value is None:
        return "-"
    if low is None or high is None:
        return f"{value:{sign}.3f} [-]"
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
