"""Reward functions as the judge of a run."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from cory.judges import parsing
from cory.judges.weighted_sum import Term, WeightedSum

Reward = Callable[..., Sequence[float]]
"""`f(prompts, completions, **columns) -> scores`, or a judge `f(texts) -> scores`."""


DEPTH = 5
"""How far the parts of parts of a function are looked at."""

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The place of an object in memory, as its `repr` has it."""


def listed(reward: Reward | Sequence[Reward]) -> list[Reward]:
    """One reward or several as a list; ValueError for what is no function."""
    rewards = [reward] if callable(reward) else list(reward) if isinstance(reward, list | tuple) else []
    if not rewards or not all(map(callable, rewards)):
        wrong = next((one for one in rewards if not callable(one)), reward)
        raise ValueError(f"reward is {wrong!r}; give a function, a list of functions, or a judge's name")
    return rewards


def judge_of(reward: Reward | Sequence[Reward]) -> WeightedSum:
    """The sum of the rewards as a judge."""
    return WeightedSum([Term(name_of(one).replace("/", ":"), 1.0, one) for one in listed(reward)])


def remembered(reward: Reward | str | Sequence[Reward]) -> str:
    """The specification of a judge for rewards; those of a session are found by it as long as it lasts.

    A function that can be imported is imported again, by worker processes; a text is a specification.
    """
    if isinstance(reward, str):
        return reward
    rewards = listed(reward)
    names = [name_of(one) for one in rewards]
    for name, one in zip(names, rewards, strict=True):
        if "@" in name:
            parsing.remember(name, one)
    return " + ".join(names)


@contextmanager
def known_here(reward: Reward | str | Sequence[Reward] | None) -> Iterator[str | None]:
    """`remembered`; inside the block functions that can be imported are those of this session, too."""
    if reward is None or isinstance(reward, str):
        yield reward
        return
    known, items = remembered(reward), parsing.REGISTRY.items
    before = dict(items)
    items.update({name_of(one): one for one in listed(reward)})
    try:
        yield known
    finally:
        items.clear()
        items.update(before)


def name_of(function: Any) -> str:
    """`module:name`, by which `cory evaluate` finds a function that can be imported.

    Of anything else, as a lambda, a method or what a script holds, with a hash of what it consists of: the
    same in the next session, and not that of another one.
    """
    kind = function if hasattr(function, "__qualname__") else type(function)
    name = f"{kind.__module__}:{kind.__qualname__}"
    importable = "<" not in kind.__qualname__ and kind.__module__ != "__main__"
    of_class = isinstance(function, MethodType) and isinstance(function.__self__, type)
    if importable and (of_class or isinstance(function, FunctionType | BuiltinFunctionType | type)):
        return name
    text = ADDRESS.sub("", repr(_parts(function, DEPTH)))
    return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _parts(value: Any, depth: int) -> Any:
    """What a function or an object consists of: its code and what that holds, its arguments or attributes."""
    if isinstance(value, FunctionType) and depth:
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_parts(one, depth - 1) for one in (value.__code__, *held, *(value.__defaults__ or ()))]
    if isinstance(value, partial) and depth:
        return _parts(value.func, depth - 1), value.args, value.keywords
    if isinstance(value, MethodType) and depth:
        return value.__name__, _parts(value.__self__, depth - 1)
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_parts(one, depth) for one in value.co_consts]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))  # its own order differs between processes
    if isinstance(value, list | tuple) and depth:
        return [_parts(item, depth - 1) for item in value]
    if isinstance(held := getattr(value, "__dict__", value), Mapping) and depth:
        return [(name, _parts(item, depth - 1)) for name, item in held.items()]
    return held
