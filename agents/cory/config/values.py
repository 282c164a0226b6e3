"""Settings as dictionaries: dataclasses as `name: value` and back, each value by the type of its field."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.constructors import PrimitiveConstructorSpec

HOMES = ("~/", "~" + os.sep)


def names_of(text: str) -> tuple[str, ...]:
    """The names in a text, separated by commas and perhaps spaces; `none` is no names."""
    return () if text == "none" else tuple(name for word in text.split(",") if (name := word.strip()))


LISTED: PrimitiveConstructorSpec[tuple[str, ...]] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="NAME,NAME,...",
    instance_from_str=lambda words: names_of(words[0]),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda names: [",".join(names)],
)
"""A list of names as the command line gives it."""

BY_SEAT: PrimitiveConstructorSpec[Any] = PrimitiveConstructorSpec(
    nargs="*",
    metavar="SEAT=VALUE",
    instance_from_str=lambda words: (
        dict(word.split("=", 1) for word in words) if all("=" in word for word in words) else words[0]
    ),
    is_instance=lambda value: isinstance(value, str | Mapping),
    str_from_instance=lambda value: (
        [value] if isinstance(value, str) else [f"{seat}={one}" for seat, one in value.items()]
    ),
)
"""A setting by seat; `--name.SEAT VALUE` is turned into this form before it is parsed."""

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """A tree of settings as `name: value`; `Config.from_flat` reads it back."""
    values: dict[str, Any] = {}
    for one in fields(settings):
        value, name = getattr(settings, one.name), prefix + one.name.removesuffix("_options")
        if is_dataclass(value):
            values |= flat(value, name + ".")
        elif isinstance(value, tuple):
            values[name] = list(value)
        elif isinstance(value, Mapping):
            values |= {f"{name}.{seat}": of_seat for seat, of_seat in value.items()}
        else:
            values[name] = str(value) if isinstance(value, Path) else value
    return values


def changed(settings: Any) -> list[str]:
    """Names of the fields of a dataclass that differ from their defaults."""
    default = type(settings)()
    return [one.name for one in fields(default) if getattr(settings, one.name) != getattr(default, one.name)]


def dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, `kl.coef`; groups may be dictionaries or dataclasses, and later ones win."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_").removesuffix("_options")
        if is_dataclass(value) and not isinstance(value, type):
            value = {one.name: getattr(value, one.name) for one in fields(value)}
        if isinstance(value, Mapping) and "." not in name:
            result |= {f"{name}.{str(inner).replace('-', '_')}": one for inner, one in value.items()}
        else:
            result[name] = value
    return result


def dotted_once(
    values: Mapping[str, Any], *, whole: Callable[[Any], bool] = lambda value: False
) -> dict[str, Any]:
    """`dotted`, of a file; values that are `whole` are no groups.

    ValueError for a setting that is there twice, as `kl.coef` and in a group `kl`.
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        part = {str(key): value} if whole(value) else dotted({key: value})
        if twice := result.keys() & part.keys():
            raise ValueError(f"{min(twice)} is given twice; give it once")
        result |= part
    return result


def grouped_by_seat(given: Mapping[str, Any], starts: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Settings with `players.observer_1: x` as `players: {observer_1: x}`, added to those it starts from.

    An empty text takes a seat out.
    """
    result = dict(given)
    for name, start in starts.items():
        inside = {key.partition(".")[2]: result.pop(key) for key in given if key.startswith(f"{name}.")}
        if inside:
            by_seat = {**start, **{seat: convert(one, str, f"{name}.{seat}") for seat, one in inside.items()}}
            result[name] = {seat: one for seat, one in by_seat.items() if one}
    return result


def converted(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of fields of a dataclass, each of its field's type; ValueError for one that cannot be."""
    hints = _hints(kind)
    return {name: convert(value, hints[name], prefix + name) for name, value in values.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def convert(value: Any, hint: Any, name: str) -> Any:
    """A value from Python, YAML or JSON as the type of a setting; ValueError for what is none.

    Text of a number is that number, since YAML takes 1e-5 for text. A number is text where text is asked for,
    and so are rows of numbers, as JSON.
    """
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return _of_union(value, hint, name)
    if kind is Literal:
        word = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value  # YAML's yes and no
        if word in arguments:
            return word
    elif kind is tuple:
        values = list(value) if isinstance(value, list | tuple) else [value]
        kinds = arguments[:1] * len(values) if arguments[-1:] == (...,) else arguments or (Any,) * len(values)
        if len(values) == len(kinds):
            return tuple(convert(one, of, name) for one, of in zip(values, kinds, strict=True))
    elif kind is Any or (
        kind not in (int, float, str) and isinstance(kind, type) and isinstance(value, kind)
    ):
        return value.expanduser() if isinstance(value, Path) else value
    elif kind is str:
        if isinstance(value, str | Path):
            return at_home(str(value))
        if isinstance(value, list | tuple):
            return json.dumps(value)
        if isinstance(value, Real) and not isinstance(value, bool):
            return str(value)
    elif kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    elif kind in (int, float) and isinstance(value, (Integral if kind is int else Real) | str):
        try:
            if not isinstance(value, bool):
                return kind(value)
        except ValueError:
            pass
    named = ", the name under which you cory.register it" if kind is str and callable(value) else ""
    raise ValueError(f"{name} is {value!r}; give {_described(hint)}{named}")


def _of_union(value: Any, hint: Any, name: str) -> Any:
    kinds = get_args(hint)
    if type(value) in kinds:
        return convert(value, type(value), name)
    if NoneType in kinds and value in ("none", "None"):  # as flags write it; YAML takes it for text
        return None
    for kind in kinds:
        try:
            return convert(value, kind, name)
        except ValueError:
            continue
    raise ValueError(f"{name} is {value!r}; give {_described(hint)}")


def _described(hint: Any) -> str:
    """The values of a type, in words."""
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join("none" if one is NoneType else _described(one) for one in arguments)
    if kind is Literal:
        return " or ".join(map(repr, arguments))
    if kind is tuple and arguments[-1:] != (...,):
        return f"{len(arguments)} values, each {' or '.join(dict.fromkeys(map(_described, arguments)))}"
    if kind is tuple:
        return f"a list of values, each {_described(arguments[0])}"
    return KINDS.get(kind, getattr(kind, "__name__", str(kind)))


def at_home(value: str) -> str:
    """A path with `~/` at its start as one in the home folder; any other text as it is."""
    return os.path.expanduser(value) if value.startswith(HOMES) else value
