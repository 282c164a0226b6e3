"""An evaluation as tables: figures with their intervals, for the terminal and for the report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cory.tracking.labels import in_order

WIDE = 200
"""Columns where no terminal says how many there are: lines that break are hard to read in a file."""

IN_GAME = (
    "task_reward", "accuracy", "probability", "second_judge", "payoff", "kl", "kl_per_token",
    "combined_reward", "length", "eos_share", "repetition", "distinct_2", "reference_perplexity",
)  # fmt: skip
"""What the table of the seats shows; the JSON has everything."""


class Sheet(NamedTuple):
    """A table of texts; the first cell of a row says what it is about."""

    title: str
    head: list[str]
    rows: list[list[str]]


def print_tables(result: Mapping[str, Any]) -> None:
    """Each policy alone, its gain over the reference, the seats of the game, how much policies differ,
    targets against the first, and signs of collapse."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console = console if console.is_terminal else Console(width=WIDE)
    for sheet in sheets(result):
        table = Table(title=sheet.title, title_justify="left", title_style="bold")
        for i, name in enumerate(sheet.head):
            table.add_column(Text(name), justify="right" if i else "left")
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for line in remarks(result):
        console.print(line, markup=False)


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What the data leave out, signs of collapse, with what they are, and what a judge could not score."""
    told = [f"{line}." for line in result["data"]["left_out"]]
    told += [f"Signs of collapse: {'; '.join(result['collapse_signs'])}."]
    told += [f"{name}: {'; '.join(signs) or 'none'}" for name, signs in result["collapse"].items()]
    return told + [f"judge {row['judge']} failed: {row['failure']}" for row in result["failures"]]


def sheets(result: Mapping[str, Any]) -> list[Sheet]:
    """The tables that have something to show."""
    figures, games = result["figures"], result["in_game"]
    shown = in_order(quantity for of in figures.values() for quantity in of)
    seats = {part: {name: of[part] for name, of in games.items()} for part in ("figures", "intervals")}
    gains, unlike, compared = (result[p] for p in ("gain_over_reference", "diversity", "comparison"))
    kept = [
        _sheet(
            f"each policy alone: {setting(result)}", shown, figures, _figure(figures, result["intervals"])
        ),
        _sheet("gain over the reference, query by query", shown, gains, _difference(gains, "gain", "+")),
        _sheet("in the game", IN_GAME, games, _figure(**seats)),
        _sheet("two answers to the same query", ("differing", "ngram_distance"), unlike, _difference(unlike)),
        _sheet("differences, query by query", shown, compared, _difference(compared, sign="+")),
    ]
    return [sheet for sheet in kept if sheet.rows]


def setting(result: Mapping[str, Any]) -> str:
    """On how much, how and at what price, in a line."""
    samples = "" if result["samples"] == 1 else f" x {result['samples']} samples"
    correct = "" if result["threshold"] is None else f", correct from a reward of {result['threshold']:g}"
    return (
        f"{result['queries']} of {result['data']['test']} held-out queries{samples}, "
        f"{result['sampling']} sampling, "
        f"eta {result['kl_coef']:g}{correct}; 95 % intervals"
    )


def cell(value: float | None, low: float | None, high: float | None, *, sign: str = "") -> str:
    """A number and its interval; a dash where there is none."""
    if value is None or low is None or high is None:
        return "-"
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _figure(
    figures: Mapping[str, Mapping[str, Any]], intervals: Mapping[str, Mapping[str, Any]]
) -> Callable[[str, str], str]:
    return lambda name, q: cell(figures[name].get(q), *intervals[name].get(q, (None, None)))


def _difference(
    of: Mapping[str, Mapping[str, Any]], value: str = "value", sign: str = ""
) -> Callable[[str, str], str]:
    def written(name: str, quantity: str) -> str:
        told = of[name].get(quantity)
        return "-" if told is None else cell(told[value], told["low"], told["high"], sign=sign)

    return written


def _sheet(
    title: str, quantities: Sequence[str], names: Mapping[str, Any], written: Callable[[str, str], str]
) -> Sheet:
    """One row per quantity that any of the names has, one column per name."""
    rows = [[quantity, *(written(name, quantity) for name in names)] for quantity in quantities]
    return Sheet(title, ["", *names], [row for row in rows if any(text != "-" for text in row[1:])])
