"""Keyword settings as flags: dataclasses, dictionaries and plain values alike."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from cory.config.parsing import flags_from, flat


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line words."""
    return flags_from(_plain(settings))


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
