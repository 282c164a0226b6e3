"""Tasks by name: `load("echo")` gives the `Task` of `echo.py`; other packages add theirs by entry point."""

import importlib
import inspect
import pkgutil
from importlib.metadata import entry_points
from typing import Any

from cory_env.tasks.base import Task

GROUP = "cory.tasks"
"""Entry points of this group name a module that holds a class `Task`, as `my_task = "my_package.my_task"`."""


def names() -> list[str]:
    """The tasks on offer: one per file in this folder, and those other distributions bring."""
    own = {module.name for module in pkgutil.iter_modules(__path__)} - {"base"}
    return sorted(own | entry_points(group=GROUP).names)


def load(name: str, **options: Any) -> Task:
    """Build the task called `name`; a wrong name or option is answered with the right ones."""
    if name not in names():
        raise ValueError(f"no task called {name!r}; there are {', '.join(names())}")
    foreign = entry_points(group=GROUP)
    module = foreign[name].load() if name in foreign.names else importlib.import_module(f"{__name__}.{name}")
    kind: Any = module.Task
    known = inspect.signature(kind).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    if unknown := [] if free else sorted(set(options) - set(known)):
        raise ValueError(f"task {name} has no option {unknown[0]!r}; it has {', '.join(known)}")
    task: Task = kind(**options)
    return task
