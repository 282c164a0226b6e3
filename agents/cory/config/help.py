"""Help of a command: every setting with its effect, or only those that are shown."""

from collections.abc import Collection
from copy import copy
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from functools import cache, partial
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


def with_effects(
    kind: Any, default: Any = None, *, shown: Collection[str] | None = None, prefix: str = ""
) -> Any:
    """The dataclass `kind` with the docstring of each field as its help, each in one paragraph.

    With `shown` the other settings are hidden; a name is a setting (`kl.coef`) or a whole group (`kl.`).
    tyro by itself breaks the help wherever the source breaks a docstring.
    """
    hints = get_type_hints(kind, include_extras=True)
    members: list[tuple[str, Any, Any]] = []
    for one in fields(kind):
        label = one.name.removesuffix("_options")
        name = prefix + label
        value = one.default if default is None else getattr(default, one.name)
        hint: Any = Annotated[hints[one.name], arg(help=effects(kind).get(one.name, ""))]
        if shown is not None and not _is_shown(f"{name}." if is_dataclass(value) else name, shown):
            hint = Annotated[hints[one.name], Suppress]
        elif is_dataclass(value):
            group = with_effects(type(value), value, shown=shown, prefix=f"{name}.")
            hint = Annotated[group, arg(name=label)]
            value = group(**{inner.name: getattr(value, inner.name) for inner in fields(value)})
        given: Any = {} if value is MISSING else {"default_factory": partial(copy, value)}
        members.append((one.name, hint, field(**given)))
    about = {"__doc__": first_line(kind)}
    return make_dataclass(kind.__name__, members, frozen=True, kw_only=True, namespace=about)


def _is_shown(name: str, shown: Collection[str]) -> bool:
    """Whether a setting, or something of a group (`kl.`), is shown."""
    return any(
        name == one
        or (one.endswith(".") and name.startswith(one))
        or (name.endswith(".") and one.startswith(name))
        for one in shown
    )


@cache
def effects(kind: Any) -> dict[str, str]:
    """The docstring of each field of a class and its bases, in one paragraph."""
    from docstring_parser import parse_from_object

    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for base in reversed(kind.__mro__[:-1])
        for parameter in parse_from_object(base).params
    }


def first_line(documented: Any) -> str:
    """The first sentence of a docstring, in one line."""
    from docstring_parser import parse

    return " ".join((parse(documented.__doc__ or "").short_description or "").split())
