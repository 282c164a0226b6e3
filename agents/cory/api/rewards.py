"""Reward functions as the judge of a run."""

from collections.abc import Callable, Sequence
from typing import Any

from cory.judges import parsing
from cory.judges.weighted_sum import Term, WeightedSum

Reward = Callable[..., Sequence[float]]
"""`f(prompts, completions, **columns) -> scores`, or a judge `f(texts) -> scores`."""


def listed(reward: Reward | Sequence[Reward]) -> list[Reward]:
    """One reward or several as a list; ValueError for what is no function."""
    rewards = [reward] if callable(reward) else list(reward) if isinstance(reward, list | tuple) else []
    if not rewards or not all(map(callable, rewards)):
        raise ValueError(f"reward is {reward!r:.80}; give a function, a list of functions, or a judge's name")
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
        if (name.startswith("__main__:") or "<" in name) and names.count(name) == 1:
            parsing.remember(name, one)
    return " + ".join(names)


def name_of(function: Any) -> str:
    """`module:name`, by which `cory evaluate` finds a function that can be imported."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}:{kind.__qualname__}"
