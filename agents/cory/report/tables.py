"""Tables of text, on a terminal, on a page and in Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cory.report import html
from cory.runtime.terminal import plain

FILE_WIDTH = 200
"""Columns of text if the output is not a terminal; wide, so that rows do not wrap."""

UNBROKEN = re.compile(r"\([-+\d.]+ (?:to|of) [-+\d.]+\)|\[[-+\d.]+, [-+\d.]+\]|[-\d.]+ \xb1 [\d.]+")
"""Intervals, ranges and "19.2 of 20", which no line break should divide."""


class Table(NamedTuple):
    """A table of texts; the first cell of a row is its name."""

    title: str
    head: list[str]
    rows: list[list[str]]
    kind: str = "numbers"
    """Its class on the page."""
    note: str = ""
    """What its cells are."""


def cell(value: float | None, low: float | None, high: float | None, *, sign: str = "") -> str:
    """Format a number and its interval, each of them a dash if there is none."""
    if value is None:
        return "-"
    if low is None or high is None:
        return f"{value:{sign}.3f} [-]"
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def on_page(table: Table, *, level: int = 2) -> list[html.Markup]:
    """A heading, the note and the table, if it has rows."""
    note = [html.paragraph(table.note, muted=True)] if table.note else []
    rows = [html.table(table.head, table.rows, kind=table.kind)] if table.rows else []
    return [html.heading(table.title, level=level), *note, *rows]


def markdown(table: Table) -> list[str]:
    """A heading, the note and the table, if it has rows, as lines of Markdown."""
    note = ["", table.note] if table.note else []
    rows = ["", *markdown_rows(table.head, table.rows)] if table.rows else []
    return ["", f"## {table.title}", *note, *rows]


def markdown_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; no line break divides an interval."""
    return [_markdown_row(head), "|---" * len(head) + "|", *map(_markdown_row, rows)]


def _markdown_row(cells: Sequence[str]) -> str:
    text = f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    return UNBROKEN.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def edits_and_failures(result: Mapping[str, Any]) -> list[str]:
    """Lines on a judge or data that were edited since training, and on responses that a judge failed on."""
    failed = [f"judge {row['judge']} failed: {row['failure']}" for row in result["failures"]]
    return [*(f"{line}." for line in result.get("edited", ())), *failed]


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
        table._replace(
            head=[table.head[i] for i in (0, *group)],
            rows=[[row[i] for i in (0, *group)] for row in table.rows],
        )
        for group in groups
    ]
