"""Keyword settings as flags: dataclasses, dictionaries and plain values alike."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from cory.config.parsing import flags_from, flat
from cory.config.schema import Config

SHOWN_AS = {"quiet": 'log="quiet"', "json_log": 'log="json"'}
"""Options of the command that the function has under another name."""


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line words."""
    return flags_from(_plain(settings))


def check_names(settings: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise ValueError for a name that is close to an argument of `function` and is no setting."""
    of_runs = {one.name.removesuffix("_options") for one in fields(Config)}
    arguments = [name for name in inspect.signature(function).parameters if name != "settings"]
    for name in settings:
        near = difflib.get_close_matches(name, arguments, n=1, cutoff=0.8)
        if name not in of_runs and (near or name in SHOWN_AS):
            hint = SHOWN_AS.get(name) or f"{near[0]}=..."
            raise ValueError(f"{function.__name__} takes no argument {name!r}; write {hint}")


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `flag: value`, from dataclasses and dictionaries alike."""
    plain: dict[str, Any] = {}
    for name, value in settings.items():
        name = name.removesuffix("_options")
        if is_dataclass(value) and not isinstance(value, type):
            plain |= {f"{name}.{key}": one for key, one in flat(value).items()}
        elif isinstance(value, Mapping):
            plain |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            plain[name] = value
    return plain


def as_dict(group: Any) -> dict[str, Any]:
    """A group of settings, a dataclass or a dictionary, as a dictionary."""
    return flat(group) if is_dataclass(group) and not isinstance(group, type) else dict(group)
