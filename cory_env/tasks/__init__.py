"""Task registry: `load("echo")` builds the `Task` of `echo.py`; other packages add tasks by entry point."""

import importlib
import inspect
import pkgutil
from importlib.metadata import entry_points
from typing import Any

from cory_env.nearest import did_you_mean
from cory_env.plugin_files import module_of
from cory_env.tasks.base import Task

GROUP = "cory.tasks"
"""Entry points of this group name a module that holds a class `Task`, as `my_task = "my_package.my_task"`."""
_REGISTERED: dict[str, Any] = {}


def names() -> list[str]:
    """List the tasks: one per module of this package, and those of installed entry points.

    `base` and modules whose name begins with an underscore are no tasks.
    """
    return sorted(_built_in() | set(_REGISTERED) | entry_points(group=GROUP).names)


def _built_in() -> set[str]:
    modules = {module.name for module in pkgutil.iter_modules(__path__)} - {"base"}
    return {name for name in modules if not name.startswith("_")}


def register(name: str, task_class: Any) -> None:
    """Make a class available as the task `name` in this process."""
    if name in names():
        raise ValueError(f"there is a task {name!r} already; choose another name")
    _REGISTERED[name] = task_class


def kind(name: str) -> Any:
    """Return the class of the task `name`, which may be `module:Class` or `file.py:Class`."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _built_in():  # before entry points: to find those takes 20 ms, and every configuration asks
        return importlib.import_module(f"{__name__}.{name}").Task
    module_name, _, class_name = name.rpartition(":") if ":" in name else (name, "", "")
    if class_name:
        try:
            module = module_of(module_name)
        except ImportError as error:
            raise ValueError(
                f"task {name!r} cannot be imported ({error}); write module:Class or path/to/file.py:Class"
            ) from error
    else:
        installed = entry_points(group=GROUP)
        if name not in installed.names:
            raise ValueError(
                f"no task called {name!r}; there are {', '.join(names())}; a task of your own is given as "
                f"module:Class or file.py:Class, or by an entry point of {GROUP} (docs/extending.md)"
                + did_you_mean(name, names())
            )
        module = installed[name].load()
    task_class = getattr(module, class_name or "Task", None)
    if task_class is None:
        raise ValueError(f"task {name!r}: the module {module.__name__} has no class {class_name or 'Task'!r}")
    return task_class


def options(name: str) -> dict[str, inspect.Parameter]:
    """Return the options of the task `name`: the parameters of its class."""
    return dict(inspect.signature(kind(name)).parameters)


def load(name: str, **given: Any) -> Task:
    """Build the task `name` with options `given`; errors for a wrong name or option list the right ones."""
    known = options(name)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    if unknown := [] if takes_any else sorted(set(given) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"task {name} has no option {unknown[0]!r}; it has {', '.join(known)}{hint}")
    task: Task = kind(name)(**given)
    parts = [part for part in vars(Task) if not part.startswith("_")]
    if missing := [part for part in parts if not hasattr(task, part)]:
        raise ValueError(
            f"task {name!r} is incomplete: {type(task).__name__} has no {', '.join(missing)}; "
            "see docs/extending.md"
        )
    return task
