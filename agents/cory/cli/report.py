"""`cory report`: draw the plots and report.html of runs again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.config.parsing import parse
from cory.report.page import write_report


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs."""

    runs: Positional[tuple[Path, ...]]
    """Run directories."""


def command(argv: Sequence[str]) -> None:
    """`cory report RUN...`."""
    about = "Draw the plots and report.html of one or more runs again."
    options: Options = parse(Options, argv, about=about, command="cory report")
    if not options.runs:
        raise ValueError("cory report draws plots and report.html again; name one or more run directories")
    for run in options.runs:
        print(write_report(run))
