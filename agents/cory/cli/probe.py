"""`cory probe`: what the two seats of runs, checkpoints or models do to each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.cli.output import not_written
from cory.config.parsing import parse, split_arguments
from cory.runtime.terminal import plain, say


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is probed, in how many games.

    Settings of the run (`--seats 2`, `--payoff`, `--task`, ...; see `cory train --help`) may follow and hold
    for every target. docs/studies/probe.md explains every number.
    """

    targets: Positional[tuple[str, ...]]
    """Run directories, checkpoints, folders of models or adapters, hub names."""

    preset: str | None = None
    """Settings for targets that are not part of a run; by default pocket."""

    queries: int = 64
    """Held-out queries."""

    pioneers: int = 4
    """Pioneer responses to each query."""

    observers: int = 4
    """Observer responses to each pioneer response."""

    seed: int = 0
    """Random seed of the games."""

    out: Path | None = None
    """Output file (JSON) for a single target; by default probe.json in the run directory, if it is a run."""


def command(argv: Sequence[str]) -> None:
    """`cory probe TARGET... [options] [settings of the run]`."""
    ours, settings = split_arguments(argv, Options)
    about = "Measure what the two seats of a team do to each other. " + " ".join(
        (Options.__doc__ or "").split()
    )
    probe(parse(Options, ours, about=about, command="cory probe"), settings)


def probe(options: Options, settings: Sequence[str] = ()) -> None:
    """Print the tables of every target and write their results.

    Targets are checked before the first one is probed.
    """
    from rich.console import Console
    from rich.text import Text

    from cory.api.probe import find_target, probe_target
    from cory.config import presets
    from cory.evaluation.probe_games import ProbeConfig
    from cory.evaluation.tables import print_tables
    from cory.report import probe as tables
    from cory.runtime.files import check_output, write_text
    from cory.training.factory import configure_runtime, silence_transformers

    silence_transformers()
    if not options.targets:
        raise ValueError("cory probe takes runs and models; name one or more before the options")
    if options.out is not None and len(options.targets) > 1:
        raise ValueError(f"--out names one file for {len(options.targets)} targets; leave it out")
    if options.out is not None:
        check_output(options.out, '"measured": {')
    if options.preset is not None:
        presets.find(options.preset)
    config = ProbeConfig(
        queries=options.queries, pioneers=options.pioneers, observers=options.observers, seed=options.seed
    )
    targets = [find_target(name, options.preset, settings) for name in options.targets]
    configure_runtime(targets[0].config)
    for target in targets:
        with Console(stderr=True).status("loading") as status:
            result = probe_target(target, config, on_progress=lambda text: status.update(Text(plain(text))))
        say(f"{target.name}: {tables.describe(result)}; 95 % intervals over queries.")
        print_tables(tables.make_tables(result), tables.remarks(result))
        path = options.out or (target.run / tables.FILE if target.run is not None else None)
        if path is not None:
            with not_written(path, named=options.out is not None):
                write_text(path, json.dumps(result, indent=1, allow_nan=False))
                say(f"result: {path}")
