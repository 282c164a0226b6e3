"""Command lines, parsed by tyro: the options of commands, and the settings of a run that they give."""

import contextlib
import difflib
import io
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, fields, make_dataclass
from itertools import takewhile
from typing import Annotated, Any, TypeVar

from tyro.conf import arg

from cory.config.help import HELP, with_effects
from cory.config.schema import Config
from cory.config.values import at_home, flat

T = TypeVar("T")

SEATED = ("players", "sees")
"""Settings that have a value by seat."""

WIDTH = 2**14
"""Columns of a message that is not printed as it is."""


def parse_settings(
    argv: Sequence[str],
    *,
    default: Config,
    command: str,
    about: str = "",
    shown: Collection[str] | None = None,
    options: type | None = None,
) -> dict[str, Any]:
    """The settings that flags give, by dotted name; with the dataclass `options` all of its fields too.

    The options of the task and of the algorithm are those of the named ones, by default of `default`'s;
    `--help` shows the values of `default`, of the settings that are `shown`.
    """
    argv = joined_by_seat(argv)
    start = typed(default, argv, options)
    parsed = parse(type(start), argv, default=start, about=about, command=command, shown=shown)
    values = flat(parsed)
    given = dict.fromkeys(one.name for one in fields(options)) if options is not None else {}
    for word in argv:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            group, dot, last = name.rpartition(".")
            name = name if name in values else group + dot + last.removeprefix("no_")
            inside = [key for key in values if name in SEATED and key.startswith(f"{name}.")]
            given |= dict.fromkeys(inside or [name])
    return {name: values[name] for name in given}


def joined_by_seat(argv: Sequence[str]) -> list[str]:
    """The words with `--players.observer_1 VALUE` as `--players observer_1=VALUE`, once for all seats."""
    others: list[str] = []
    by_seat: dict[str, list[str]] = {}
    words = iter(argv)
    for word in words:
        name, dot, rest = word.removeprefix("--").partition(".")
        if word.startswith("--") and dot and name in SEATED:
            seat, equals, value = rest.partition("=")
            value = value if equals else next(words, "")
            by_seat.setdefault(name, []).append(f"{seat.replace('-', '_')}={at_home(value)}")
        else:
            others.append(word)
    for name in by_seat:
        if (whole := value_of(others, f"--{name}")) is not None and "=" not in whole:
            raise ValueError(f"--{name} {whole} is for all seats, --{name}.SEAT for one; give either")
    return others + [word for name, given in by_seat.items() for word in (f"--{name}", *given)]


def typed(default: Config, argv: Sequence[str] = (), options: type | None = None) -> Any:
    """`default` as a class that knows the options of its task and algorithm, or of those that flags name."""
    named = {name: value_of(argv, f"--{name}") for name in ("task", "algorithm", "turns")}
    if named["turns"] and "--players" in argv:  # both say how many seats there are
        words = takewhile(lambda word: not word.startswith("--"), argv[list(argv).index("--players") + 1 :])
        named |= {f"players.{seat}": player for seat, _, player in (word.partition("=") for word in words)}
    config = Config.from_flat({name: value for name, value in named.items() if value}, default)
    kinds = {name: type(getattr(config, f"{name}_options")) for name in ("task", "algorithm")}
    kind = make_dataclass(
        "Config",
        [
            (f"{name}_options", Annotated[kind, arg(name=name)], field(default_factory=kind))
            for name, kind in kinds.items()
        ],
        bases=(Config,) if options is None else (Config, options),
        frozen=True,
        kw_only=True,
    )
    return kind(**{one.name: getattr(config, one.name) for one in fields(Config)})


def parse_command(argv: Sequence[str], options: type[T], *, command: str, about: str) -> tuple[T, list[str]]:
    """The options of a command, and the words that set something else: settings of a run."""
    ours, settings = split_arguments(argv, options)
    about = f"{about} {' '.join((options.__doc__ or '').split())}"
    return parse(options, ours, about=about, command=command), settings


def parse(
    kind: type[T],
    argv: Sequence[str],
    *,
    about: str,
    command: str,
    default: Any = None,
    shown: Collection[str] | None = None,
) -> T:
    """A dataclass `kind` from flags; ValueError that suggests the nearest right flag or value.

    `--help` prints the settings `shown`, by default all; `--help-all` prints all.
    """
    import tyro

    argv = [word_at_home(word) for word in argv]
    if HELP & set(argv):
        everything = shown is None or "--help-all" in argv
        kind = with_effects(kind, default, shown=None if everything else shown)
        argv, default = ["--help"], None
    output = io.StringIO()
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(output), _columns(None if "--help" in argv else WIDTH):
            # Settings are documented by docstrings: reading comments would double the time.
            off = (tyro.conf.HelptextFromCommentsOff,)
            parsed: T = tyro.cli(
                kind, args=list(argv), description=about, prog=command, config=off, **options
            )
            return parsed
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_without_frame(output.getvalue())) from None


def split_arguments(argv: Sequence[str], options: type) -> tuple[list[str], list[str]]:
    """The words that belong to a command's own `options`, and the rest, which are settings of a run.

    A misspelt option belongs to the options too, whose parser suggests the right one.
    """
    names = {one.name.replace("_", "-") for one in fields(options)}
    known = names | {f"no-{name}" for name in names} | {word.lstrip("-") for word in HELP}
    of_runs = {one.name.removesuffix("_options").replace("_", "-") for one in fields(Config)}
    ours: list[str] = []
    settings: list[str] = []
    part = ours
    for word in argv:
        if word.startswith("-") and word[1:2] not in set("0123456789."):
            name = word.lstrip("-").split("=", 1)[0]
            unknown = name.split(".")[0] not in of_runs
            misspelt = unknown and difflib.get_close_matches(name, names, cutoff=0.8)
            part = ours if name in known or misspelt else settings
        part.append(word)
    return ours, settings


def value_of(argv: Sequence[str], flag: str) -> str | None:
    """The last value given for `flag`, None if there is none."""
    value = None
    for word, after in zip(argv, [*argv[1:], ""], strict=False):
        if word == flag:
            value = after
        elif word.startswith(flag + "="):
            value = word.split("=", 1)[1]
    return None if value is None else word_at_home(value)


def word_at_home(word: str) -> str:
    """A word with `~/` at the start of its value as the home folder: `~/x`, `--flag=~/x`."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return flag + equals + at_home(value)


@contextlib.contextmanager
def _columns(number: int | None) -> Iterator[None]:
    """Let text be this wide, whatever the terminal, so that no word of it is broken; None = as it is."""
    before = os.environ.get("COLUMNS")
    if number is not None:
        os.environ["COLUMNS"] = str(number)
    try:
        yield
    finally:
        if number is not None:
            os.environ.pop("COLUMNS")
            os.environ.update({} if before is None else {"COLUMNS": before})


def _without_frame(box: str) -> str:
    """The words of a boxed message without its frame and title; the command with help stands last."""
    _title, *inside = box.splitlines() or [""]
    inside = [line[1:-1] if line.startswith("│") else line for line in inside]  # ASCII has no frame
    lines = [line.strip() for line in inside if line.strip("╰╯─- ")]
    if "Perhaps you meant:" in lines:  # the flags, without their help
        start = lines.index("Perhaps you meant:") + 1
        flags = [line.split()[0] for line in lines[start:-1] if line.startswith("--")]
        lines[start:-1] = [", ".join(flags[:3])]
    words = " ".join(lines)
    words = re.sub(r"^Error parsing (?:(?!--)\S+: |(?=--))", "", words)
    words = re.sub(r" Argument helptext: .*?(?= For full helptext)", "", words)
    return re.sub(r"[\s.]*For full helptext, (?:run|see) ", "; see ", words) or "the options are wrong"
