"""Checks of settings, with one sentence for each rule."""

import math
from collections.abc import Callable, Sequence
from typing import Any

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

    Names are separated by spaces; None breaks no rule. Fields at the top have the group "".
    """
    for rule, names in fields.items():
        holds, advice = RULES[rule]
        for name in names.split():
            value = getattr(settings, name)
            if value is not None and not holds(value):
                raise ValueError(f"{_name(group, name)} is {value}; {advice}")


def check_choices(settings: Any, group: str, /, **choices: Sequence[str]) -> None:
    """Raise ValueError for the first field, called `group.field`, that is none of its choices."""
    for name, known in choices.items():
        if (value := getattr(settings, name)) not in known:
            raise ValueError(f"{_name(group, name)} is {value!r}; there are {', '.join(known)}")


def _name(group: str, field: str) -> str:
    return f"{group}.{field}" if group else field
