"""Help of a command: every setting with its effect, or only those that are shown."""

from collections.abc import Collection
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from tyro.conf import Suppress, arg

COMMON = (
    "task",
    "judge",
    "policy.model",
    "policy.kind",
    "seats",
    "payoff",
    "iterations",
    "batch",
    "max_response",
    "seed",
    "algorithm",
    "exchange.every",
    "kl.coef",
    "learner.lr",
    "log_to",
)
"""The settings of a run that people change first, which `cory train --help` shows."""

HELP = frozenset({"-h", "--help", "--help-all"})
"""Flags that print help."""


def with_effects(kind: Any, default: Any = None, *, shown: Collection[str] | None = None) -> Any:
    """Return the dataclass `kind` with the docstring of each field as its help, each in one paragraph.

    With `shown` the other settings are hidden; a name is a setting (`kl.coef`) or a whole group (`kl.`).
    tyro by itself breaks the help wherever the source breaks a docstring.
    """
    return _documented(kind, default, shown, "") or kind


def _documented(kind: Any, default: Any, shown: Collection[str] | None, prefix: str) -> Any:
    """Return the dataclass to show, None if it has nothing to show."""
    hints = get_type_hints(kind, include_extras=True)
    members: list[tuple[str, Any, Any]] = []
    visible = False
    for one in fields(kind):
        name = prefix + one.name.removesuffix("_options")
        value = _default_of(one, default)
        known = {} if value is MISSING else {"default": value}
        if is_dataclass(value):
            group = _documented(type(value), value, shown, f"{name}.")
            label = arg(name=one.name.removesuffix("_options"))
            hint = Annotated[type(value), Suppress] if group is None else Annotated[group, label]
            known = {"default": value} if group is None else {"default": _copied(group, value)}
            visible |= group is not None
        elif (
            shown is None or name in shown or any(one.endswith(".") and name.startswith(one) for one in shown)
        ):
            hint = Annotated[hints[one.name], arg(help=effects(kind).get(one.name, ""))]
            visible = True
        else:
            hint = Annotated[hints[one.name], Suppress]
        members.append((one.name, hint, field(**known)))
    if not visible:
        return None
    about = {"__doc__": first_line(kind)}
    return make_dataclass(kind.__name__, members, frozen=True, kw_only=True, namespace=about)


def _default_of(one: "Field[Any]", default: Any) -> Any:
    if default is not None:
        return getattr(default, one.name)
    return one.default if one.default_factory is MISSING else one.default_factory()


def _copied(kind: Any, value: Any) -> Any:
    return kind(**{one.name: getattr(value, one.name) for one in fields(value)})


@cache
def effects(kind: Any) -> dict[str, str]:
    """Return the docstring of each field of a class and its bases, in one paragraph."""
    from docstring_parser import parse_from_object

    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for base in reversed(kind.__mro__[:-1])
        for parameter in parse_from_object(base).params
    }


def first_line(documented: Any) -> str:
    """Return the first sentence of a docstring, in one line."""
    from docstring_parser import parse

    return " ".join((parse(documented.__doc__ or "").short_description or "").split())
