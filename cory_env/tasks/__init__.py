"""Tasks by name: `load("echo")` builds the `Task` of `echo.py`; other packages add tasks by entry point."""

import hashlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

from cory_env.contents import digest
from cory_env.nearest import did_you_mean
from cory_env.registry import Registry
from cory_env.tasks.base import Task, validation_queries

REGISTRY: Registry[Any] = Registry(
    "task",
    "cory.tasks",
    {
        module.name: f"{__name__}.{module.name}:Task"
        for module in pkgutil.iter_modules(__path__)
        if module.name != "base" and not module.name.startswith("_")
    },
    form="module:Class or path/to/file.py:Class",
)
"""Entry points name a module that holds a class `Task`, as `my_task = "my_package.my_task"`."""

names = REGISTRY.names


def kind(name: str) -> Any:
    """Return the class of the task `name`, which may be `module:Class` or `file.py:Class`."""
    if "@" in name.rpartition(":")[2] and name not in REGISTRY.items:
        raise ValueError(
            f"the task {name} was an object of another session; pass it again, as cory.train(task=...), or "
            "name another task"
        )
    loaded = REGISTRY.load(name)
    if isinstance(loaded, ModuleType) and not hasattr(loaded, "Task"):
        raise ValueError(f"task {name!r}: the module {loaded.__name__} has no class 'Task'")
    return loaded.Task if isinstance(loaded, ModuleType) else loaded


def remember(task: Task) -> str:
    """Make a task available in this process; its name, which says its class, its options and its queries."""
    kind = type(task)
    splits = (task.queries("train"), validation_queries(task), task.queries("test"))
    parts = [
        _plain(getattr(task, "__dict__", {})),
        *((query.text, _plain(query.row)) for split in splits for query in split),
    ]
    hashed = hashlib.sha256(ascii(parts).encode()).hexdigest()[:8]
    name = f"{kind.__module__}:{kind.__qualname__}@{hashed}"
    if name in REGISTRY.items and digest(REGISTRY.load(name)()) != digest(task):
        name += digest(task)
    REGISTRY.items[name] = partial(_same, task)
    return name


def _plain(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What is written alike in every process."""
    flat = str | int | float
    return sorted(
        (name, value)
        for name, value in values.items()
        if isinstance(value, flat)
        or (isinstance(value, tuple) and all(isinstance(item, flat) for item in value))
    )


def _same(task: Task, tokenizer: Any = None) -> Task:  # noqa: ARG001 (language models pass theirs)
    """Return the task itself, whose tokenizer is that of its queries."""
    return task


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
    try:
        inspect.Signature([*known.values()]).bind(**given)
    except TypeError as error:
        raise ValueError(
            f"task {name} cannot be made: {error}; give it, or a default in the class"
        ) from error
    task: Task = kind(name)(**given)
    parts = [part for part in vars(Task) if not part.startswith("_")]
    if missing := [part for part in parts if not hasattr(task, part)]:
        raise ValueError(
            f"task {name!r} is incomplete: {type(task).__name__} has no {', '.join(missing)}; "
            "see docs/extending.md"
        )
    return task
