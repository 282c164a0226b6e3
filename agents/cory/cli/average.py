"""`cory average`: write the mean of several policies' weights as one model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.config.command_line import parse
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which policies, and where their mean goes."""

    targets: Positional[tuple[str, ...]]
    """Runs (all their policies), checkpoints, folders of models or adapters."""

    out: Path
    """Folder of the averaged model."""

    weights: tuple[float, ...] = ()
    """One per policy; by default equal. `cory average POLICY BASE --weights 0.7 0.3` interpolates."""


def command(argv: Sequence[str]) -> None:
    """`cory average TARGET... --out FOLDER`."""
    about = "Write a model whose weights are the mean of several policies' weights."
    options: Options = parse(Options, argv, about=about, command="cory average")
    from cory.api.averaging import average
    from cory.training.factory import silence_transformers

    silence_transformers()
    say(average(options.targets, options.out, weights=options.weights or None))
