"""Settings from flags, from YAML and back: one parser for all, so the same checks apply."""

import contextlib
import difflib
import io
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from cory import algorithms
from cory.config.help import HELP, with_effects
from cory.config.schema import Config, RunOptions
from cory.config.task_options import task_options
from cory.runtime.nearest import did_you_mean_path
from cory.runtime.yaml_files import read_yaml

MEASURED = ("memory", "lora.four_bit", "policy.compile")
"""Settings in whose place a run writes what it measured where they are `auto`."""


HOMES = ("~/", "~" + os.sep)

WIDTH = 2**14
"""Columns of a message that is not printed as it is."""


def read(argv: Sequence[str], *, default: Config, about: str, command: str) -> Config:
    """`default` changed by flags; the options of `--task` and `--algorithm` are those of the named ones."""
    start = with_options_of(
        default,
        task=value_of(argv, "--task") or default.task,
        algorithm=value_of(argv, "--algorithm") or default.algorithm,
    )
    config: Config = parse(type(start), argv, default=start, about=about, command=command)
    return config


def read_file(path: Path, *, default: Config, command: str) -> Config:
    """`default` changed by a settings file.

    ValueError for a file that also says where a run is written or whether it replaces another: whoever runs
    somebody's settings decides that on the command line.
    """
    words = flags_of(path)
    if options := [one.name for one in fields(RunOptions) if _flag(one.name) & set(words)]:
        raise ValueError(
            f"the settings file {path} sets {', '.join(options)}, which only the command line sets "
            f"({', '.join(f'--{name}' for name in options)}); remove {'it' if len(options) == 1 else 'them'}"
        )
    return read(words, default=default, about="", command=command)


def _flag(name: str) -> set[str]:
    """The words that set an option."""
    return {f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"}


def read_command(
    argv: Sequence[str], *, default: Config, about: str, command: str, shown: Collection[str] | None = None
) -> tuple[Config, RunOptions]:
    """As `read`, with the `RunOptions`, which belong to the command; `--help` lists those `shown`."""
    start = with_options_of(
        default,
        task=value_of(argv, "--task") or default.task,
        algorithm=value_of(argv, "--algorithm") or default.algorithm,
        also=RunOptions,
    )
    parsed = parse(type(start), argv, default=start, about=about, command=command, shown=shown)
    config = Config(**{one.name: getattr(parsed, one.name) for one in fields(Config)})
    return config, RunOptions(**{one.name: getattr(parsed, one.name) for one in fields(RunOptions)})


def with_options_of(config: Config, *, task: str, algorithm: str, also: type | None = None) -> Config:
    """`config` as a class whose flags are the options of this task and algorithm.

    The options of a task other than the one in `config` are at their defaults. Those of another algorithm are
    too, but for what `config` changes and both algorithms have, with the same default: a preset's lambda and
    value clip hold for every algorithm that has them.
    """
    kinds = {"task": task_options(task), "algorithm": algorithms.load(algorithm).Config}
    before = {"task": config.task, "algorithm": config.algorithm}
    values = {f.name: getattr(config, f.name) for f in fields(Config)} | {
        "task": task,
        "algorithm": algorithm,
    }
    if task != before["task"]:
        values["task_options"] = kinds["task"]()
    if algorithm != before["algorithm"]:
        values["algorithm_options"] = algorithms.carried(config.algorithm_options, kinds["algorithm"])
    typed = make_dataclass(
        "Config",
        [
            (f"{name}_options", Annotated[kind, arg(name=name)], field(default_factory=kind))
            for name, kind in kinds.items()
        ],
        bases=(Config,) if also is None else (Config, also),
        frozen=True,
        kw_only=True,
    )
    changed: Config = typed(**values)
    return changed


def parse(
    kind: Any,
    argv: Sequence[str],
    *,
    about: str,
    command: str,
    default: Any = None,
    shown: Collection[str] | None = None,
) -> Any:
    """A dataclass `kind` from flags; ValueError that suggests the nearest right flag or value.

    `--help` prints the settings `shown`, by default all; `--help-all` prints all.
    """
    import tyro

    argv = [at_home(word) for word in argv]
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
            return tyro.cli(kind, args=list(argv), description=about, prog=command, config=off, **options)
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
    return None if value is None else at_home(value)


def at_home(word: str) -> str:
    """A word with `~/` at the start of its value as the home folder: `~/x`, `--flag=~/x`."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return flag + equals + os.path.expanduser(value) if value.startswith(HOMES) else word


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


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """A tree of settings as `flag: value`; `flags_of` reads it back."""
    values: dict[str, Any] = {}
    for one in fields(settings):
        value, name = getattr(settings, one.name), prefix + one.name.removesuffix("_options")
        if is_dataclass(value):
            values |= flat(value, name + ".")
        elif isinstance(value, tuple):
            values[name] = list(value)
        else:
            values[name] = str(value) if isinstance(value, Path) else value
    return values


def flags_of(path: Path) -> list[str]:
    """A YAML file of settings (flat or nested) as flags."""
    return flags_from(settings_of(path))


def settings_of(path: Path) -> dict[str, Any]:
    """A YAML file of settings (flat or nested) as `name: value`; nothing that it names is imported."""
    try:
        tree = read_yaml(path)
    except ValueError as error:
        raise ValueError(
            f"the settings file {path} cannot be read ({error}); give YAML{did_you_mean_path(path)}"
        ) from error
    if not isinstance(tree, dict):
        raise ValueError(
            f"the settings file {path} does not hold `name: value` lines; see config.yaml of any run"
        )
    return dict(_leaves(tree))


GONE = {"policy.kernels": "auto"}
"""Settings that have been removed, with the default that runs were stored with."""


def flags_from(settings: dict[str, Any]) -> list[str]:
    """Settings keyed by flag name (`kl.coef`, or nested dictionaries) as command-line words.

    A stored setting that has been removed since is left out where it was at its default.
    """
    leaves = [leaf for leaf in _leaves(settings) if leaf not in GONE.items()]
    return [word for name, value in leaves for word in _words(name, value)]


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings, flat, with those added since at their defaults; as stored if unreadable.

    So a setting that is new, and at its default, does not make a run another one.
    """
    try:
        config = read(flags_from(dict(settings)), default=Config(), about="", command="")
    except ValueError:
        return dict(settings)
    return as_json(config)


def changes(before: Mapping[str, Any], now: Mapping[str, Any], *, allowed: tuple[str, ...] = ()) -> list[str]:
    """Flat settings that differ, in words, but for those whose names begin with one of `allowed`.

    `auto` is what the run before has measured (`MEASURED`).
    """
    return [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
        and not name.startswith(allowed)
        and not (name in MEASURED and now.get(name) == "auto")
    ]


def as_json(config: Config) -> dict[str, Any]:
    """Flat settings as JSON and YAML hold them."""
    settings: dict[str, Any] = json.loads(json.dumps(flat(config)))
    return settings


def _leaves(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        leaves += (
            _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
        )
    return leaves


def _words(name: str, value: Any) -> list[str]:
    flag = str(name).replace("_", "-")
    if isinstance(value, bool):
        head, _, last = flag.rpartition(".")
        return [f"--{flag}"] if value else [f"--{head}.no-{last}" if head else f"--no-{last}"]
    if not isinstance(value, list | tuple):
        return [f"--{flag}", str(value)]
    if _is_matrix(value):
        return [f"--{flag}", json.dumps(value)]
    return [f"--{flag}", *map(str, value)]


def _is_matrix(rows: Sequence[Any]) -> bool:
    lists = bool(rows) and all(isinstance(row, list | tuple) for row in rows)
    return lists and all(isinstance(value, int | float) for row in rows for value in row)
