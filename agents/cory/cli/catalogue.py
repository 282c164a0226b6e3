"""`cory presets`, `cory tasks`, `cory algorithms`: what exists, and its options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from cory import algorithms as algorithm_registry
from cory.config import presets as preset_registry
from cory.config.command_line import parse
from cory.config.help import effects, first_line
from cory.config.schema import Config
from cory.config.task_options import task_options
from cory.config.values import flat
from cory.runtime.terminal import say
from cory_env import tasks as task_registry

FILE_WIDTH = 160
"""Columns where no terminal says how many there are."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is described."""

    names: Positional[tuple[str, ...]] = ()
    """Names to describe; without any, all are listed."""


def presets(argv: Sequence[str]) -> None:
    """`cory presets [NAME...]`: with names, the sources of their values and the settings they change."""
    names = parse(Options, argv, about="List the presets, or describe some.", command="cory presets").names
    for name in names:
        say(preset_registry.describe(name))
        base, values = flat(Config()), flat(preset_registry.get(name))
        _print(("setting", "value"), _rows({k: v for k, v in values.items() if base.get(k) != v}))
    if not names:
        every = preset_registry.PRESETS.items()
        rows = [(name, one.about, "yes" if one.run else "no") for name, one in every]
        _print(("preset", "what it is", "has been run"), rows)


def tasks(argv: Sequence[str]) -> None:
    """`cory tasks [NAME...]`: with names, also `module:Class`, their options."""
    names = parse(Options, argv, about="List the tasks, or the options of some.", command="cory tasks").names
    kinds = {name: task_registry.kind(name) for name in names or task_registry.names()}
    _list("task", kinds, {name: task_options(name) for name in names})


def algorithms(argv: Sequence[str]) -> None:
    """`cory algorithms [NAME...]`: with names, also files and modules, their options."""
    about = "List the algorithms, or the options of some."
    names = parse(Options, argv, about=about, command="cory algorithms").names
    modules = {name: algorithm_registry.registry().load(name) for name in names or algorithm_registry.names()}
    options = {name: algorithm_registry.load(name).Config for name in names}
    _list("algorithm", modules, options)


def _list(kind: str, documented: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Print the first line of what documents each name; then the options."""
    _print((kind, "what it is"), [(name, first_line(one)) for name, one in documented.items()])
    for name, of_name in options.items():
        defaults = {f"{kind}.{one.name}": getattr(of_name(), one.name) for one in fields(of_name)}
        texts = [effects(of_name).get(one.name, "") for one in fields(of_name)]
        described = [(*row, text) for row, text in zip(_rows(defaults), texts, strict=True)]
        _print((f"option of {name}", "default", "effect"), described)


def _rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as flags and text."""
    texts = {k: " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for k, v in settings.items()}
    return [(f"--{name.replace('_', '-')}", text) for name, text in texts.items()]


def _print(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without frame, as wide as the terminal."""
    console = Console()
    console = console if console.is_terminal else Console(width=FILE_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    print()
