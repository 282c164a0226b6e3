"""Algorithms by name: `load("ppo")` reads the file `ppo.py` of this folder.

An algorithm is a module with a frozen `Config`, `advantage(batches, rewards, config, states)`, which sees the
batches of all seats, and a pure `token_loss(tokens, config)`. It may add `needs(config)`, `verdict(metrics,
config)` and, where the update is no sum over tokens, an `update` of its own (`cory.algorithms.base`). It
knows neither games nor transformers. Third parties name a file, `path/to/my_algorithm.py`, or an importable
module, or add modules by an entry point of the group `cory.algorithms` or with `cory.register`.
"""

from __future__ import annotations

import pkgutil
from dataclasses import fields, replace
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cory.algorithms.base import Algorithm

if TYPE_CHECKING:
    from cory_env.registry import Modules


@cache
def registry() -> Modules:
    """The algorithms by name; the loader of plug-ins is imported when the first is asked for."""
    from cory_env.registry import Modules

    names = {module.name for module in pkgutil.iter_modules(__path__)} - {"base"}
    places = {name: f"{__name__}.{name}" for name in sorted(names)}
    return Modules("algorithm", "cory.algorithms", places, form="an importable module or a file.py")


def names() -> list[str]:
    """Names of all available algorithms."""
    return registry().names()


def register(name: str, module: ModuleType) -> None:
    """Make `module` available as the algorithm `name` in this process."""
    Algorithm.from_module(name, module)
    registry().register(name, module)


def load(name: str) -> Algorithm:
    """The algorithm called `name`: registered, a file here, an entry point, a file, or a module."""
    return Algorithm.from_module(name, registry().load(name))


def carried(options: Any, kind: Any) -> Any:
    """The options `kind` of another algorithm, with what `options` change of the defaults that both have."""
    before, after = type(options)(), kind()
    both = {option.name for option in fields(before)} & {option.name for option in fields(after)}
    same = {name for name in both if getattr(before, name) == getattr(after, name)}
    return replace(after, **{name: getattr(options, name) for name in same})
