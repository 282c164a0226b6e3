"""`cory probe`: what the two seats of runs, checkpoints or models do to each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from tyro.conf import Positional

from cory.cli.common import not_written, progress, settings_for
from cory.config.command_line import parse_command
from cory.evaluation.config import ProbeConfig
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options(ProbeConfig):
    """What is probed, in how many games.

    Settings of the run (`--seats 2`, `--payoff`, `--task`, ...; see `cory train --help`) may follow and hold
    for every target. docs/studies/probe.md explains every number.
    """

    targets: Positional[tuple[str, ...]]
    """Run directories, checkpoints, folders of models or adapters, hub names."""

    preset: str | None = None
    """Settings for targets that are not part of a run; by default pocket, or `own` for a model
    that is not bundled."""

    out: Path | None = None
    """Output file (JSON) for a single target; by default probe.json in the run directory, if it is a run."""


def command(argv: Sequence[str]) -> None:
    """`cory probe TARGET... [options] [settings of the run]`; all targets are checked first."""
    about = "Measure what the two seats of a team do to each other."
    options, words = parse_command(argv, Options, command="cory probe", about=about)
    from cory.api.probe import find_target, probe
    from cory.report import probe as tables
    from cory.report.tables import print_tables
    from cory.runtime.files import check_output, write_text
    from cory.training.targets import run_of

    if not options.targets:
        raise ValueError("cory probe takes runs and models; name one or more before the options")
    if options.out is not None and len(options.targets) > 1:
        raise ValueError(f"--out names one file for {len(options.targets)} targets; leave it out")
    if options.out is not None:
        check_output(options.out, '"measured": {')
    settings = {"preset": options.preset, **settings_for(options.targets, words, preset=options.preset)}
    sizes = {one.name: getattr(options, one.name) for one in fields(ProbeConfig)}
    for name in options.targets:
        find_target(name, **settings)
    for name in options.targets:
        with progress() as show:
            result = probe(name, on_progress=show, **sizes, **settings)
        say(f"{name}: {tables.describe(result)}; 95 % intervals over queries.")
        print_tables(tables.make_tables(result), tables.remarks(result))
        run = run_of(name)
        path = options.out or (run / tables.FILE if run is not None else None)
        if path is not None:
            with not_written(path, named=options.out is not None):
                write_text(path, json.dumps(result, indent=1, allow_nan=False))
                say(f"result: {path}")
