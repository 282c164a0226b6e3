"""`cory presets`, `cory tasks`, `cory algorithms`: what exists, where it comes from, and its options."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
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
    names = _names(argv, "presets", "List the presets, or describe some.")
    for name in names:
        say(preset_registry.describe(name))
        base, values = flat(Config()), flat(preset_registry.get(name))
        changed = {key: value for key, value in values.items() if base.get(key) != value}
        _print(("setting", "value"), [(_flag(key), _text(value)) for key, value in changed.items()])
    if not names:
        every = preset_registry.PRESETS.items()
        rows = [(name, one.about, "yes" if one.run else "no") for name, one in every]
        _print(("preset", "what it is", "has been run"), rows)


def tasks(argv: Sequence[str]) -> None:
    """`cory tasks [NAME...]`: with names, also `module:Class`, their options."""
    _list(argv, "task", task_registry, described=task_registry.kind, options=task_options)


def algorithms(argv: Sequence[str]) -> None:
    """`cory algorithms [NAME...]`: with names, also files and modules, their options."""
    _list(
        argv,
        "algorithm",
        algorithm_registry,
        described=algorithm_registry.module,
        options=lambda name: algorithm_registry.load(name).Config,
    )


def _list(
    argv: Sequence[str],
    kind: str,
    registry: Any,
    *,
    described: Callable[[str], object],
    options: Callable[[str], type[Any]],
) -> None:
    """Print all of a kind with the first line of their documentation, and the options of those named."""
    names = _names(argv, f"{kind}s", f"List the {kind}s, or the options of some.")
    rows = [
        (name, first_line(described(name)), _source(name, registry.GROUP))
        for name in names or registry.names()
    ]
    _print((kind, "what it is", "from"), rows)
    for name in names:
        _print((f"option of {name}", "default", "effect"), _options(options(name), kind))


def _names(argv: Sequence[str], command: str, about: str) -> tuple[str, ...]:
    names: tuple[str, ...] = parse(Options, argv, about=about, command=f"cory {command}").names
    return names


def _source(name: str, group: str) -> str:
    """Return where a name comes from."""
    for entry in entry_points(group=group, name=name):
        return f"entry point of {entry.dist.name}" if entry.dist is not None else "entry point"
    if name.partition(":")[0].endswith(".py"):
        return "file"
    return "module" if "." in name or ":" in name else "built in"


def _options(kind: Any, prefix: str) -> list[tuple[str, str, str]]:
    """Return flag, default and effect of every field of an options dataclass."""
    texts, defaults = effects(kind), kind()
    return [
        (_flag(f"{prefix}.{one.name}"), _text(getattr(defaults, one.name)), texts.get(one.name, ""))
        for one in fields(kind)
    ]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
