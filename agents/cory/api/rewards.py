"""Reward functions as the judge of a run."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from cory.judges import parsing
from cory_env.contents import digest

Reward = Callable[..., Sequence[float]]
"""`f(prompts, completions, **columns) -> scores`, or a judge `f(texts) -> scores`."""


def listed(reward: Reward | Sequence[Reward]) -> list[Reward]:
    """One reward or several as a list; ValueError for what is no function."""
    rewards = [reward] if callable(reward) else list(reward) if isinstance(reward, list | tuple) else []
    if not rewards or not all(map(callable, rewards)):
        wrong = next((one for one in rewards if not callable(one)), reward)
        raise ValueError(f"reward is {wrong!r}; give a function, a list of functions, or a judge's name")
    return rewards


@contextmanager
def known_here(reward: Reward | str | Sequence[Reward] | None) -> Iterator[str | None]:
    """The specification of a judge for rewards; None for none, and a text is one.

    Functions that can be imported are those of this session inside the block, and later imported again by
    worker processes; others are found by their names as long as the session lasts.
    """
    if reward is None or isinstance(reward, str):
        yield reward
        return
    rewards, items = listed(reward), parsing.REGISTRY.items
    names, before = [name_of(one) for one in rewards], dict(items)
    known = dict(zip(names, rewards, strict=True))
    items.update(known)
    try:
        yield " + ".join(names)
    finally:
        items.clear()
        items.update(before | {name: one for name, one in known.items() if "@" in name})


def name_of(function: Any) -> str:
    """`module:name`, by which `cory evaluate` finds a function that can be imported.

    Of anything else, as a lambda, a method or what a script holds, with a hash of what it consists of: the
    same in the next session, and not that of another one.
    """
    kind = function if hasattr(function, "__qualname__") else type(function)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if _is_importable(function, kind) else f"{name}@{digest(function)}"


def _is_importable(function: Any, kind: Any) -> bool:
    """Whether an import by the name of `kind` gives the function itself, and not what it wraps."""
    if kind.__module__ == "__main__":
        return False
    try:
        return bool(attrgetter(kind.__qualname__)(sys.modules[kind.__module__]) == function)
    except (AttributeError, KeyError):
        return False
