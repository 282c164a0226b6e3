"""`cory evaluate`: runs, models and players on held-out queries, standalone and in the game."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from cory.cli.output import not_written
from cory.config.parsing import parse, split_arguments
from cory.generation import SamplingStrategy
from cory.runtime.terminal import plain, say


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
    """Settings for targets that are not part of a run; by default pocket, each model its own reference."""

    queries: int | None = None
    """Held-out queries; by default as many as the run used."""

    samples: int | None = None
    """Responses to each query; if scores are 0 or 1, pass@k is reported for every k up to this."""

    sampling: SamplingStrategy | None = None
    """`own` distribution, `paper` (top-k 10, top-p 0.7, repetition penalty 1.1) or `greedy`."""

    threshold: float | None = None
    """The task reward from which a response counts as correct; by default the task says it."""

    game: bool = True
    """Whether the policies also play the game on these queries, each in each seat."""

    out: Path | None = None
    """Output file (JSON), samples beside it; by default evaluations/<task>-<hash>.json in the run directory,
    if one run is evaluated. The hash is that of what is measured: only the same measurement is replaced."""


def command(argv: Sequence[str]) -> None:
    """`cory evaluate TARGET... [options] [settings of the run]`."""
    ours, settings = split_arguments(argv, Options)
    about = "Evaluate policies on held-out queries, standalone and in the game. " + " ".join(
        (Options.__doc__ or "").split()
    )
    evaluate(parse(Options, ours, about=about, command="cory evaluate"), settings)


def evaluate(options: Options, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Print tables, write the JSON and the samples, return the summary.

    The same weights give the same numbers as during the run.
    """
    from rich.console import Console
    from rich.text import Text

    from cory.config import presets
    from cory.evaluation import records
    from cory.evaluation.summary import check_output, sample_lines, write
    from cory.evaluation.tables import make_tables, print_tables, remarks
    from cory.training.evaluate import evaluate_targets
    from cory.training.factory import configure_runtime, silence_transformers
    from cory.training.targets import find_all

    silence_transformers()
    if not options.targets:
        raise ValueError("cory evaluate takes runs and models; name one or more before the options")
    if options.out is not None:
        check_output(options.out)
    if options.preset is not None:
        presets.find(options.preset)
    targets = find_all(options.targets, preset=options.preset, flags=settings)
    configure_runtime(targets[0].config)
    given = {
        name: value
        for name in ("queries", "samples", "sampling", "threshold")
        if (value := getattr(options, name)) is not None
    }
    configs = [replace(t.config, evaluation=replace(t.config.evaluation, **given)) for t in targets]
    targets = [replace(target, config=config) for target, config in zip(targets, configs, strict=True)]
    with Console(stderr=True).status("loading") as status:
        result, evaluated = evaluate_targets(
            targets, game=options.game, on_progress=lambda text: status.update(Text(plain(text)))
        )
    say(f"Evaluated: {records.describe(result['measured'])}.")
    print_tables(make_tables(result), remarks(result))
    path = options.out
    if path is None and len(targets) == 1 and targets[0].run is not None:
        path = records.path_of(targets[0].run, result["measured"])
    if path is not None:
        with not_written(path, named=options.out is not None):
            say(f"summary: {path}\nsamples: {write(path, result, sample_lines(evaluated))}")
    return result
