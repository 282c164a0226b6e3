"""`cory study`: train the runs of a study, count them, and draw its report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from cory.config.command_line import parse_command, parse_settings
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which study, and how much of it.

    Without a file `--arms ppo,mine=my_algorithm.py` compares algorithms, the first being the baseline, and
    settings of the runs may follow (`--task relay --kl.coef 0.1`, ...; see `cory train --help`).
    """

    file: Positional[Path | None] = None
    """The study file (YAML); see docs/studies/README.md."""

    arms: str | None = None
    """Train only these arms, separated by commas; mine=my_algorithm.py is one beside the study's. Without a
    file, the algorithms to compare."""

    preset: str | None = None
    """Without a file, what the settings change; by default pocket, or own for a model that is not bundled."""

    tasks: str | None = None
    """Train only on these tasks, separated by commas."""

    seeds: int | None = None
    """Seeds 0 to this number - 1, instead of those in the file."""

    quick: bool = False
    """One seed of two iterations of every arm, in a folder of its own."""

    jobs: int | None = None
    """Runs at a time, one thread each; by default as many as there are accelerators, else cores, with ray in
    the cluster. Runs on one accelerator share its memory."""

    engine: Literal["local", "ray"] = "local"
    """Who trains: processes of this machine, or tasks of a Ray cluster (pip install 'cory[ray]')."""

    out: Path | None = None
    """Folder of runs and report, instead of the one in the file."""

    report: bool = False
    """Train nothing: count the finished runs again and draw the report."""

    retrain: bool = False
    """Train again what was trained with other settings, files or modules than today's, and remove stored runs
    whose arm or task the study no longer has, instead of refusing them."""


def command(argv: Sequence[str]) -> None:
    """`cory study FILE`, or `cory study --arms A,B [settings]`; exit code 1 if a run failed."""
    about = "Train the runs of a study that are missing, compare its arms, and draw the report."
    options, words = parse_command(argv, Options, command="cory study", about=about)
    given = [*words, *([] if options.preset is None else ["--preset", options.preset])]
    if options.file is not None and given:
        raise ValueError(f"{' '.join(given)}: settings stand in {options.file}; leave them out, or the file")
    from cory.cli.train import chosen_by
    from cory.config import own_model
    from cory.study import Study
    from cory.study.report import verdict_lines

    arms, tasks = (
        [word.strip() for word in (one or "").split(",") if word.strip()]
        for one in (options.arms, options.tasks)
    )
    if options.file is None:
        default = own_model.start(options.preset, chosen_by(words))
        settings = parse_settings(words, default=default, command="cory study")
        study = Study.from_settings(arms, seeds=options.seeds or 5, preset=options.preset, **settings)
    else:
        study = Study.from_yaml(options.file)
    finished = study.run(
        arms=arms if arms and options.file is not None else None,
        tasks=tasks or None,
        seeds=options.seeds,
        quick=options.quick,
        jobs=options.jobs,
        out=options.out,
        train=not options.report,
        engine=options.engine,
        retrain=options.retrain,
    )
    say("\n".join(verdict_lines(finished.results)))
    say(f"results: {finished.path}\nreport:  {finished.page}")
    if finished.failed:
        runs = "1 run" if len(finished.failed) == 1 else f"{len(finished.failed)} runs"
        say(f"{runs} failed; the same command tries again")
        raise SystemExit(1)
