"""`cory study`: train the runs of a study, count them, and draw its report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from cory.config.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which study, and how much of it."""

    file: Positional[Path]
    """The study file (YAML); see docs/studies/README.md."""

    arms: str | None = None
    """Train only these arms, separated by commas."""

    tasks: str | None = None
    """Train only on these tasks, separated by commas."""

    seeds: int | None = None
    """Seeds 0 to this number - 1, instead of those in the file."""

    quick: bool = False
    """With the file's `quick` overrides, in a folder of its own."""

    jobs: int | None = None
    """Runs at a time, one thread each; by default as many as there are cores, with ray in the cluster."""

    engine: Literal["local", "ray"] = "local"
    """Who trains: processes of this machine, or tasks of a Ray cluster (pip install 'cory[ray]')."""

    out: Path | None = None
    """Folder of runs and report, instead of the one in the file."""

    report: bool = False
    """Train nothing: count the finished runs again and draw the report."""

    retrain: bool = False
    """Train again what was trained with other settings, files or modules than today's, and remove stored runs
    whose arm or task the study no longer has, instead of refusing them."""

    allow_dirty: bool = False
    """Run with uncommitted code; results then go to the folder of the runs, not to the committed file."""


def command(argv: Sequence[str]) -> None:
    """`cory study FILE`; exit code 1 if a run failed."""
    about = "Train the runs of a study that are missing, compare its arms, and draw the report."
    options: Options = parse(Options, argv, about=about, command="cory study")
    from cory.study import Study
    from cory.study.report import verdict_lines

    finished = Study.from_yaml(options.file).run(
        arms=options.arms.split(",") if options.arms else None,
        tasks=options.tasks.split(",") if options.tasks else None,
        seeds=options.seeds,
        quick=options.quick,
        jobs=options.jobs,
        out=options.out,
        allow_dirty=options.allow_dirty,
        train=not options.report,
        engine=options.engine,
        retrain=options.retrain,
    )
    print("\n".join(verdict_lines(finished.results)))
    print(f"results: {finished.path}\nreport:  {finished.page}")
    if finished.failed:
        runs = "1 run" if len(finished.failed) == 1 else f"{len(finished.failed)} runs"
        print(f"{runs} failed; the same command tries again")
        raise SystemExit(1)
