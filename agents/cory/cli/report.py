"""`cory report`: draw the pages of runs again, a page that compares them, or the paper's figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.config.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs, and which pages."""

    runs: Positional[tuple[Path, ...]]
    """Run directories. Two or more are also compared: runs with equal settings but for the seed are one
    arm, the first run's arm is the baseline."""

    out: Path | None = None
    """The page of the comparison or of the paper's figures; by default `comparison.html` or
    `paper_figures.html` in the folder that holds all runs."""

    as_paper: bool = False
    """Draw only the paper's kinds of figures: training curves, frontier, pass@k, ablations, cooperation to
    competition."""

    pages: bool = True
    """Draw each run's own page too."""


def command(argv: Sequence[str]) -> None:
    """`cory report RUN...`."""
    about = "Draw the plots and report.html of runs again; two or more are also compared on one page."
    options: Options = parse(Options, argv, about=about, command="cory report")
    if not options.runs:
        raise ValueError("cory report draws plots and report.html again; name one or more run directories")
    if options.out is not None and len(options.runs) < 2 and not options.as_paper:
        raise ValueError("--out names the page that compares runs; name two or more, or pass --as-paper")
    from cory.report.page import write_report
    from cory.study.comparison import write_comparison, write_paper_figures

    if options.as_paper:
        print(write_paper_figures(options.runs, options.out))
        return
    for run in options.runs if options.pages else ():
        print(write_report(run))
    if len(options.runs) > 1:
        print(write_comparison(options.runs, options.out))
