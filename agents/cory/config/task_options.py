"""The options of a task as a dataclass, from the signature of its class."""

import inspect
from dataclasses import field, make_dataclass
from functools import cache
from typing import Any

from cory_env import tasks

PLAYERS = ("tokenizer", "judge")
"""Arguments of a task that the run supplies."""


@cache
def task_options(name: str) -> type[Any]:
    """A frozen dataclass of the arguments of the task called `name`, with their types and defaults.

    An argument without annotation has the type of its default; one without default is None when not given.
    """
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    known = [p for p in tasks.options(name).values() if p.name not in PLAYERS and p.kind not in kinds]
    return make_dataclass(
        "TaskOptions",
        [(p.name, _type(p), field(default=_default(p))) for p in known],
        frozen=True,
        kw_only=True,
        namespace={"__doc__": _documentation(tasks.kind(name))},
    )


def _documentation(kind: Any) -> str | None:
    """What describes the arguments: the docstring of `__init__`, or that of the class where there is none."""
    own = kind.__init__ is not object.__init__ and inspect.getdoc(kind.__init__)
    return own or inspect.getdoc(kind)


def _default(parameter: inspect.Parameter) -> Any:
    return None if parameter.default is inspect.Parameter.empty else parameter.default


def _type(parameter: inspect.Parameter) -> Any:
    annotation, default = parameter.annotation, _default(parameter)
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return str | None if default is None else type(default)
    return annotation | None if default is None else annotation
