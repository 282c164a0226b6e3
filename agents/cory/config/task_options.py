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
    kind: Any = tasks.kind(name)
    own = kind.__init__ is not object.__init__ and inspect.getdoc(kind.__init__)
    return make_dataclass(
        "TaskOptions",
        [_field(p.name, p.annotation, None if p.default is p.empty else p.default) for p in known],
        frozen=True,
        kw_only=True,
        namespace={"__doc__": own or inspect.getdoc(kind)},
    )


def _field(name: str, annotation: Any, default: Any) -> tuple[str, Any, Any]:
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        annotation = str if default is None else type(default)
    return name, annotation | None if default is None else annotation, field(default=default)
