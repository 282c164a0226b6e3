"""`cory report`: draw the pages of runs again, a page that compares them, or the paper's figures."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tyro.conf import Positional

from cory.cli.common import not_written
from cory.config.command_line import parse
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs, and which pages."""

    runs: Positional[tuple[Path, ...]]
    """Run directories. Two or more are also compared: runs with equal settings but for the seed are one
    arm, the first run's arm is the baseline."""

    out: Path | None = None
    """The page of one run, of the comparison or of the paper's figures; by default `report.html` in the run,
    `comparison.html` or `paper_figures.html` in the folder that holds all runs."""

    as_paper: bool = False
    """Draw only the paper's kinds of figures and tables: training curves, frontier, pass@k, ablations,
    cooperation to competition; settings, pass@k and samples."""


def command(argv: Sequence[str]) -> None:
    """`cory report RUN...`."""
    about = "Draw the plots and report.html of runs again; two or more are also compared on one page."
    options: Options = parse(Options, argv, about=about, command="cory report")
    if not options.runs:
        raise ValueError("cory report draws plots and report.html again; name one or more run directories")
    from cory.report.page import write_report
    from cory.report.summary import headline
    from cory.study.comparison import check_runs, write_comparison, write_paper_figures

    if options.as_paper:
        say(write_paper_figures(options.runs, options.out))
        return
    several = len(options.runs) > 1
    for line in check_runs(options.runs) if several else ():
        say(f"warning: {line}", file=sys.stderr)
    out = None if several else options.out
    for run in options.runs:
        with not_written(run / "report.html", named=out is not None, instead=partial(headline, run)):
            say(write_report(run, out))
    if several:
        say(write_comparison(options.runs, options.out))
