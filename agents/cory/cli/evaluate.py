"""`cory evaluate`: runs, models and players on held-out queries, standalone and in the game."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.cli.common import not_written, progress, settings_for
from cory.config.command_line import parse_command
from cory.generation import SamplingStrategy
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is evaluated, on how many queries and how.

    Settings of the run (`--task`, `--task.data`, `--judge`, `--max-response`, `--policy.model` for the
    reference, ...; see `cory train --help`) may follow and hold for every target.
    """

    targets: Positional[tuple[str, ...]]
    """Run directories, checkpoints, folders of models or adapters, hub names; several are compared.
    `module:function` or `file.py:function` returns an object with `act(observation, info)`: it is scored by
    the settings of the first other target, or of the preset."""

    preset: str | None = None
    """Settings for targets that are not part of a run, with its model as reference; by default pocket, or
    `own` for a model that is not bundled, and each model is its own reference."""

    queries: int | None = None
    """Held-out queries; by default as many as the run used."""

    samples: int | None = None
    """Responses to each query; where the task or `threshold` says what is correct, pass@k is reported for
    every k up to this."""

    sampling: SamplingStrategy | None = None
    """`own` distribution, `paper` (top-k 10, top-p 0.7, repetition penalty 1.1) or `greedy`."""

    threshold: float | None = None
    """The task reward from which a response counts as correct; by default the task says it."""

    game: bool = True
    """Whether the policies also play the game on these queries, each in each seat."""

    cross_play: bool = False
    """Whether every policy plays as the pioneer of every other instead: the matrix of their scores, and with
    `out` a page of heat maps beside it."""

    out: Path | None = None
    """Output file (JSON), samples beside it; by default evaluations/<task>-<hash>.json in the run directory,
    if one run is evaluated. The hash is that of what is measured: only the same measurement is replaced."""


def command(argv: Sequence[str]) -> None:
    """`cory evaluate TARGET... [options] [settings of the run]`."""
    about = "Evaluate policies on held-out queries, standalone and in the game."
    options, words = parse_command(argv, Options, command="cory evaluate", about=about)
    from cory.api.commands import cross_play, evaluate
    from cory.evaluation import records
    from cory.evaluation.summary import check_output, write
    from cory.report import cross_play as of_cross_play
    from cory.report.evaluation import make_tables, remarks
    from cory.report.tables import edits_and_failures, print_tables
    from cory.training.targets import run_of

    if options.out is not None and not options.cross_play:
        check_output(options.out)
    settings = settings_for(options.targets, words, preset=options.preset)
    names = ("queries", "samples", "sampling", "threshold")
    settings |= {
        f"evaluation.{name}": value for name in names if (value := getattr(options, name)) is not None
    }
    if options.cross_play:
        if not options.game:
            raise ValueError("cross-play is games between policies; leave out --no-game or --cross-play")
        with progress() as show:
            result = cross_play(
                *options.targets, preset=options.preset, out=options.out, on_progress=show, **settings
            )
        say(f"{of_cross_play.describe(result)}.")
        print_tables(of_cross_play.make_tables(result), edits_and_failures(result))
        if options.out is not None:
            say(f"result: {options.out}\npage:   {options.out.with_suffix('.html')}")
        return
    with progress() as show:
        result = evaluate(
            *options.targets, preset=options.preset, game=options.game, on_progress=show, **settings
        )
    say(f"Evaluated: {records.describe(result['measured'])}.")
    print_tables(make_tables(result), remarks(result))
    run = run_of(options.targets[0]) if len(options.targets) == 1 else None
    path = options.out or (records.path_of(run, result["measured"]) if run is not None else None)
    if path is not None:
        with not_written(path, named=options.out is not None):
            say(f"summary: {path}\nsamples: {write(path, result)}")
