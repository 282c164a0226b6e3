"""Names of keyword settings, which belong to a run or to a function."""

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from cory.config.schema import Config

SHOWN_AS = {"quiet": 'log="quiet"', "json_log": 'log="json"'}
"""Options of the command that the function has under another name."""


def check_names(settings: Iterable[str], function: Callable[..., Any]) -> None:
    """Raise ValueError for a name that is close to an argument of `function` and is no setting."""
    of_runs = {one.name.removesuffix("_options") for one in fields(Config)}
    arguments = [name for name in inspect.signature(function).parameters if name != "settings"]
    for name in settings:
        near = difflib.get_close_matches(name, arguments, n=1, cutoff=0.8)
        if name.partition(".")[0] not in of_runs and (near or name in SHOWN_AS):
            hint = SHOWN_AS.get(name) or f"{near[0]}=..."
            raise ValueError(f"{function.__name__} takes no argument {name!r}; write {hint}")
