"""Checks of settings, with one sentence for each rule."""

import math
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "natural": (lambda x: x >= 0, "give 0 or more"),
    "count": (lambda x: x >= 1, "give 1 or more"),
    "group": (lambda x: x >= 2, "games of one query are compared: give 2 or more, or take reinforce or ppo"),
    "share": (lambda x: 0 <= x <= 1, "choose a value from 0 to 1"),
    "below_1": (lambda x: 0 <= x < 1, "choose a value from 0 to below 1"),
    "fraction": (lambda x: 0 < x < 1, "choose a value between 0 and 1"),
    "weight": (lambda x: 0 <= x < math.inf, "give a finite number, 0 or more"),
    "positive": (lambda x: x > 0, "give a number above 0"),
    "rate": (lambda x: 0 < x < math.inf, "give a finite number above 0"),
    "finite": (math.isfinite, "give a finite number"),
    "above_1": (lambda x: x > 1, "give a number above 1"),
}
"""What a number may be, and advice about others."""


def check_fields(settings: Any, group: str, /, **fields: str) -> None:
    """Raise ValueError for the first field, called `group.field`, that breaks the rule its name is given for.

    Names are separated by spaces; None breaks no rule. Fields at the top have the group "". A field whose
    type is `Literal` must be one of its choices, named or not.
    """
    kind: Any = type(settings)
    for name, known in _choices(kind).items():
        if (value := getattr(settings, name)) not in known:
            raise ValueError(f"{_name(group, name)} is {value!r}; there are {', '.join(map(str, known))}")
    for rule, names in fields.items():
        holds, advice = RULES[rule]
        for name in names.split():
            value = getattr(settings, name)
            if value is not None and not holds(value):
                raise ValueError(f"{_name(group, name)} is {value}; {advice}")


def check_new(names: Iterable[str], known: Collection[str], source: str) -> None:
    """Raise ValueError for a quantity that `source` reports by a name that is known already."""
    if taken := [name for name in names if name in known]:
        raise ValueError(
            f"{source} reports {taken[0]!r}, which is a quantity of every run; report it by another name"
        )


@cache
def _choices(kind: Any) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(kind).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}


def _name(group: str, field: str) -> str:
    return f"{group}.{field}" if group else field
