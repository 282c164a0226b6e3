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


def kind(name: str) -> Any:
    """The class of the task called `name`, or `module:Class` of any module that can be imported."""
    module_name, _, class_name = name.partition(":")
    foreign = entry_points(group=GROUP)
    if class_name:
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ValueError(f"task {name!r} cannot be imported ({error}); write module:Class") from error
    elif name not in names():
        raise ValueError(
            f"no task called {name!r}; there are {', '.join(names())}; one of your own is written "
            f"module:Class, or installed with an entry point of {GROUP} (CONTRIBUTING.md)"
        )
    else:
        here = f"{__name__}.{name}"
        module = foreign[name].load() if name in foreign.names else importlib.import_module(here)
    found = getattr(module, class_name or "Task", None)
    if found is None:
        raise ValueError(f"task {name!r}: the module {module.__name__} has no class {class_name or 'Task'!r}")
    return found


def options(name: str) -> dict[str, inspect.Parameter]:
    """What the task called `name` may be given."""
    return dict(inspect.signature(kind(name)).parameters)


def load(name: str, **given: Any) -> Task:
    """Build the task called `name`; a wrong name or option is answered with the right ones."""
    known = options(name)
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    if unknown := [] if free else sorted(set(given) - set(known)):
        raise ValueError(f"task {name} has no option {unknown[0]!r}; it has {', '.join(known)}")
    task: Task = kind(name)(**given)
    parts = [part for part in vars(Task) if not part.startswith("_")]
    if missing := [part for part in parts if not hasattr(task, part)]:
        raise ValueError(
            f"task {name!r} is none: {type(task).__name__} has no {', '.join(missing)}; see CONTRIBUTING.md"
        )
    return task
