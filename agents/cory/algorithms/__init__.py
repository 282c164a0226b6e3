"""Algorithms by name: `load("ppo")` reads the file `ppo.py` of this folder.

An algorithm is a module with a frozen `Config`, `advantage(batches, rewards, config, states)`, which sees the
batches of all seats, and a pure `token_loss(tokens, config)`. It may add `needs(config)`, `verdict(metrics,
config)` and, where the update is no sum over tokens, an `update` of its own (`cory.algorithms.base`). It
knows neither games nor transformers. Third parties name a file, `path/to/my_algorithm.py`, or an importable
module, or add modules by an entry point of the group `cory.algorithms` or with `cory.register_algorithm`.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import fields, replace
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from cory.algorithms.base import Algorithm
from cory.runtime.nearest import did_you_mean
from cory.runtime.plugins import load_file

GROUP = "cory.algorithms"
_REGISTERED: dict[str, ModuleType] = {}


def names() -> list[str]:
    """Names of all available algorithms."""
    return sorted(_own() | set(entry_points(group=GROUP).names) | set(_REGISTERED))


def _own() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(__path__)} - {"base"}


def register(name: str, module: ModuleType) -> None:
    """Make `module` available as the algorithm `name` in this process."""
    if name in names():
        raise ValueError(f"there is an algorithm {name!r} already; choose another name")
    Algorithm.from_module(name, module)
    _REGISTERED[name] = module


def load(name: str) -> Algorithm:
    """The algorithm called `name`: registered, a file here, an entry point, a file, or a module."""
    return Algorithm.from_module(name, module(name))


def module(name: str) -> ModuleType:
    """The module of the algorithm called `name`; ValueError if there is none."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _own():  # before entry points: to find those takes 20 ms, and every configuration asks
        return importlib.import_module(f"{__name__}.{name}")
    for entry in entry_points(group=GROUP, name=name):
        found: ModuleType = entry.load()
        return found
    try:
        if name.endswith(".py"):
            return load_file(name)
        if importlib.util.find_spec(name):
            return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"algorithm {name!r} cannot be imported ({error}); name a module or file") from error
    raise ValueError(
        f"no algorithm called {name!r}; there are {', '.join(names())}, or name an importable module or "
        "a file.py" + did_you_mean(name, names())
    )


def carried(options: Any, kind: Any) -> Any:
    """The options `kind` of another algorithm, with what `options` change of the defaults that both have."""
    before, after = type(options)(), kind()
    both = {one.name for one in fields(before)} & {one.name for one in fields(after)}
    same = {name for name in both if getattr(before, name) == getattr(after, name)}
    return replace(after, **{name: getattr(options, name) for name in same})
