"""An evaluation in the terminal: figures with their intervals, as tables."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from agents.curves import LABELS

WIDE = 200
"""Columns where no terminal says how many there are: lines that break are hard to read in a file."""

IN_GAME = (
    "task_reward", "accuracy", "probability", "second_judge", "payoff", "kl", "kl_per_token",
    "combined_reward", "length", "eos_share", "repetition", "distinct_2", "reference_perplexity",
)  # fmt: skip
"""What the table of the seats shows; the JSON has everything."""


def print_tables(result: Mapping[str, Any]) -> None:
    """Each policy alone, its gain over the reference, the seats of the game, how much policies differ,
    targets against the first, and signs of collapse."""
    console = Console()
    console = console if console.is_terminal else Console(width=WIDE)
    for table in tables(result):
        console.print(table)
    console.print(f"Signs of collapse: {'; '.join(result['collapse_signs'])}.", style="dim")
    for name, signs in result["collapse"].items():
        console.print(f"{name}: " + ("; ".join(signs) or "none"), style="bold red" if signs else "")
    for row in result["failures"]:
        console.print(f"judge {row['judge']} failed: {row['failure']}", style="red", markup=False)


def tables(result: Mapping[str, Any]) -> list[Table]:
    """The tables that have something to show."""
    figures, intervals = result["figures"], result["intervals"]
    known = shown_quantities(figures)
    kept = [
        _table(
            f"each policy alone: {setting(result)}",
            figures,
            known,
            _figure(figures, intervals),
        )
    ]
    gains = result["gain_over_reference"]
    kept.append(
        _table("gain over the reference, query by query", gains, known, _difference(gains, value="gain"))
    )
    if games := result["in_game"]:
        seats = {part: {name: of[part] for name, of in games.items()} for part in ("figures", "intervals")}
        kept.append(_table("in the game", games, list(IN_GAME), _figure(**seats)))
    if unlike := result["diversity"]:
        rows = ["differing", "ngram_distance"]
        kept.append(_table("two answers to the same query", unlike, rows, _difference(unlike), upright=True))
    if compared := result["comparison"]:
        kept.append(_table("differences, query by query", compared, known, _difference(compared, sign="+")))
    return kept


def setting(result: Mapping[str, Any]) -> str:
    """On how much, how and at what price, in a line."""
    samples = "" if result["samples"] == 1 else f" x {result['samples']} samples"
    correct = "" if result["threshold"] is None else f", correct from a reward of {result['threshold']:g}"
    return (
        f"{result['queries']} held-out queries{samples}, {result['sampling']} sampling, "
        f"eta {result['kl_coef']:g}{correct}; 95 % intervals"
    )


def shown_quantities(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The quantities anyone has, in the order of `LABELS`, then as they come."""
    there = dict.fromkeys(quantity for of in figures.values() for quantity in of)
    return [q for q in LABELS if q in there] + [q for q in there if q not in LABELS]


def cell(value: float | None, low: float | None, high: float | None, *, sign: str = "") -> str:
    """A number and its interval; a dash where there is none."""
    if value is None or low is None or high is None:
        return "-"
    return f"{value:{sign}.3f} \\[{low:{sign}.3f}, {high:{sign}.3f}]"


def _figure(
    figures: Mapping[str, Mapping[str, Any]], intervals: Mapping[str, Mapping[str, Any]]
) -> Callable[[str, str], str]:
    return lambda name, q: cell(figures[name].get(q), *intervals[name].get(q, (None, None)))


def _difference(
    of: Mapping[str, Mapping[str, Any]], *, value: str = "value", sign: str = ""
) -> Callable[[str, str], str]:
    sign = "+" if value == "gain" else sign

    def written(name: str, quantity: str) -> str:
        told = of[name].get(quantity)
        return "-" if told is None else cell(told[value], told["low"], told["high"], sign=sign)

    return written


def _table(
    title: str,
    columns: Mapping[str, Any],
    quantities: list[str],
    written: Callable[[str, str], str],
    *,
    upright: bool = False,
) -> Table:
    """One row per quantity and one column per name, or the other way round; rows of dashes are left out."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    across, down = (quantities, list(columns)) if upright else (list(columns), quantities)
    for name in across:
        table.add_column(name, justify="right")
    for row in down:
        cells = [written(row, name) if upright else written(name, row) for name in across]
        if set(cells) != {"-"}:
            table.add_row(row, *cells)
    return table
