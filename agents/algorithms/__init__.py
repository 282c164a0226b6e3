"""Algorithms by file name: `load("ppo")` gives the module `ppo.py` of this folder, or an entry point of
`cory.algorithms`.

An algorithm is a module with a frozen `Config`, `advantage(batches, rewards, config)`, which sees the batches
of all seats, and a pure `token_loss(tokens, config)`. It knows neither games nor transformers.

Shapes: K chosen tokens.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType
from typing import NamedTuple

from torch import Tensor

_HERE = "agents.algorithms"


class Tokens(NamedTuple):
    """Everything a loss may look at, for K chosen tokens; gradients flow through the first three."""

    logprob_K: Tensor
    value_K: Tensor
    entropy_K: Tensor
    """Nats. Carries a gradient too; weigh it with a positive coefficient to keep the policy random."""

    old_logprob_K: Tensor
    ref_logprob_K: Tensor
    old_value_K: Tensor
    advantage_K: Tensor
    return_K: Tensor


class TokenLoss(NamedTuple):
    """What a loss says of each token; means over tokens are taken by the learner."""

    loss_K: Tensor
    """To minimise."""

    numbers: dict[str, Tensor]
    """Quantities whose means over tokens are reported, each [K] without gradient."""

    largest: dict[str, Tensor]
    """Quantities whose largest value is reported, likewise."""


def names() -> list[str]:
    """The algorithms on offer."""
    return sorted(
        {m.name for m in pkgutil.iter_modules(__path__)} | set(entry_points(group="cory.algorithms").names)
    )


def load(name: str) -> ModuleType:
    """The module of the algorithm called `name`."""
    if name not in names():
        raise ValueError(f"no algorithm called {name!r}; there are {', '.join(names())}")
    for entry in entry_points(group="cory.algorithms", name=name):
        module: ModuleType = entry.load()
        return module
    return importlib.import_module(f"{_HERE}.{name}")
