"""Results of cross-play: matrices for the terminal, and a page with heat maps."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cory.report import figures, html
from cory.report.tables import Table, cell, edits_and_failures, on_page
from cory.runtime import files
from cory.runtime.files import write_text

CAPTION = (
    "Mean score on held-out queries: the row's policy is the pioneer, the column's the observer. Pairs that "
    "trained together have a frame."
)


def make_tables(result: Mapping[str, Any]) -> list[Table]:
    """A matrix for each seat's score and for their sum, and the means by kind of pair."""
    names = result["policies"]
    by_pair = {(pair["pioneer"], pair["observer"]): pair["scores"] for pair in result["pairs"]}
    tables = [
        Table(
            f"{quantity}, pioneer in the row, observer in the column",
            ["", *names],
            [[row, *(cell(**by_pair[row, column][quantity]) for column in names)] for row in names],
        )
        for quantity in result["pairs"][0]["scores"]
    ]
    rows = [[kind, cell(**of_kind)] for kind, of_kind in result["means"].items()]
    return [*tables, Table("mean sum of the scores by kind of pair", ["", "sum"], rows)]


def describe(result: Mapping[str, Any]) -> str:
    """What was played, in one line."""
    count = len(result["policies"])
    return (
        f"Cross-play of {count} policies on the task {result['task']}: {count * count} pairs, "
        f"{result['queries']} held-out queries each; 95 % intervals over queries"
    )


def page(result: Mapping[str, Any]) -> str:
    """A page with a heat map for each quantity and the tables."""
    names, pairs = result["policies"], result["pairs"]

    def heat_map(axes: Axes, quantity: str) -> bool:
        values = [pair["scores"][quantity]["value"] for pair in pairs]
        matrix = [[0.0] * len(names) for _ in names]
        for pair in pairs:
            row, column = names.index(pair["pioneer"]), names.index(pair["observer"])
            matrix[row][column] = value = pair["scores"][quantity]["value"]
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white")
            if pair["kind"] == "partners":
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec="black", lw=1.8))
        axes.imshow(matrix, cmap="viridis", vmin=min(values), vmax=1.3 * max(values) - 0.3 * min(values))
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(title=quantity, xlabel="observer", ylabel="pioneer")
        axes.grid(visible=False)
        return True

    figure = figures.grid(list(pairs[0]["scores"]), heat_map, legend=False)
    assert figure is not None  # there are two seats
    width, height = figure.get_size_inches() * max(1.0, len(names) / 5)
    figure.set_size_inches(width, height)
    parts = [
        html.heading("Cross-play", level=1),
        html.paragraph(f"{describe(result)}."),
        figures.on_page(figure, title="Cross-play", caption=CAPTION),
        *(html.paragraph(line, muted=True) for line in edits_and_failures(result)),
    ]
    for table in reversed(make_tables(result)):
        parts += on_page(table)
    return html.page("Cross-play", parts)


def write(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the result to the JSON file `path`, and a page beside it; the path of the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(result, indent=1, allow_nan=False))
    write_text(path.with_suffix(".html"), page(result))
    return path.with_suffix(".html")


def check_output(path: Path) -> None:
    """Raise ValueError unless a result and its page can be written here without a loss."""
    files.check_output(path, '{\n "means": {')
    files.check_output(path.with_suffix(".html"), html.GENERATOR)
