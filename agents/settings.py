"""Settings as flags, as YAML and as frozen dataclasses: one path for all three, so all are checked by the
same rules."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def parse(kind: Any, argv: Sequence[str], *, about: str, command: str, default: Any = None) -> Any:
    """Settings from flags. A wrong flag or value is a ValueError of one paragraph that names the nearest
    right one."""
    import tyro

    said = io.StringIO()
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=list(argv), description=about, prog=command, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_plain(said.getvalue())) from None


def value_of(argv: Sequence[str], flag: str) -> str | None:
    """The last value given for `flag`, None where there is none."""
    told = None
    for word, after in zip(argv, [*argv[1:], ""], strict=False):
        if word == flag:
            told = after
        elif word.startswith(flag + "="):
            told = word.split("=", 1)[1]
    return told


def _plain(box: str) -> str:
    """The words of a boxed message without its frame, which carries a title that the words repeat."""
    inside = "\n".join(line for line in box.splitlines() if not line.startswith("╭"))
    words = "".join(" " if 0x2500 <= ord(c) <= 0x257F else c for c in inside).split()
    return " ".join(words) or "the options are wrong"


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """A tree of settings as `flag: value`; `flags_of` reads the same."""
    told: dict[str, Any] = {}
    for field in fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name.removesuffix("_options")
        if is_dataclass(value):
            told |= flat(value, name + ".")
        else:
            told[name] = (
                list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
            )
    return told


def flags_of(path: Path) -> list[str]:
    """A YAML file of settings (flat or nested) as flags."""
    import yaml

    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        leaves = _leaves(told) if isinstance(told, dict) else None
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"the settings file {path} cannot be read ({error}); give YAML") from error
    if leaves is None:
        raise ValueError(
            f"the settings file {path} does not hold `name: value` lines; see config.yaml of any run"
        )
    return [word for name, value in leaves for word in _words(name, value)]


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
    return [f"--{flag}", *(map(str, value) if isinstance(value, list) else [str(value)])]
