"""Algorithms by file name: `load("ppo")` gives what the file `ppo.py` of this folder, or the module of an
entry point of `cory.algorithms`, says about itself.

An algorithm is a module with a frozen `Config`, `advantage(batches, rewards, config, memory)`, which sees the
batches of all seats, and a pure `token_loss(tokens, config)`. It may add `needs(config)`, `verdict(numbers,
config)` and, where it is not a sum over tokens, an `update` of its own. It knows neither games nor
transformers.

Shapes: K chosen tokens.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Literal, NamedTuple

from torch import Tensor

_HERE = "agents.algorithms"

Verdict = Literal["step", "skip", "stop"]
"""On a minibatch whose gradient is known: take the step, leave it out, or end this policy's update."""

Memory = dict[str, float]
"""Numbers an algorithm keeps from one iteration to the next. They belong to the policy, move with it through
every exchange and lie in its checkpoints."""


class Needs(NamedTuple):
    """What an algorithm asks of the players."""

    values: bool = True
    """Whether it learns from a value head."""

    group: int = 1
    """Games of one query; the games of a group are neighbours in every batch."""


class Tokens(NamedTuple):
    """Everything a loss may look at, for K chosen tokens; gradients flow through the first four."""

    logprob_K: Tensor
    value_K: Tensor
    entropy_K: Tensor
    """Nats. Carries a gradient too; weigh it with a positive coefficient to keep the policy random."""
    exact_kl_K: Tensor | None
    """KL(policy || reference) over the vocabulary, where the price of KL is `full` and part of the loss."""

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


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A module's answers to the contract, with the defaults of what it leaves out."""

    name: str

    Config: type[Any]
    """Frozen dataclass; a field `epochs` says how often the learner passes over a batch; by default once."""

    advantage: Callable[..., dict[str, Any]]
    """(batches, rewards, config, memory) -> an `Advantage` per seat. All four are keyed by seat except
    `config`; `memory` holds the `Memory` of the policy that sits there and may be written to."""

    token_loss: Callable[[Tokens, Any], TokenLoss]
    """Pure; called chunk by chunk."""

    needs: Callable[[Any], Needs]
    """(config) -> what it asks of the players; by default a value head and single games."""

    verdict: Callable[[Mapping[str, float], Any], Verdict]
    """(means over a minibatch, config) -> what to do with its gradient; by default always a step."""

    update: Callable[..., dict[str, float]] | None
    """(learner, batch, advantage, config) -> numbers, instead of the learner's passes of token losses."""


def names() -> list[str]:
    """The algorithms on offer."""
    return sorted(
        {m.name for m in pkgutil.iter_modules(__path__)} | set(entry_points(group="cory.algorithms").names)
    )


def load(name: str) -> Algorithm:
    """The algorithm called `name`."""
    if name not in names():
        raise ValueError(f"no algorithm called {name!r}; there are {', '.join(names())}")
    for entry in entry_points(group="cory.algorithms", name=name):
        return _told(name, entry.load())
    return _told(name, importlib.import_module(f"{_HERE}.{name}"))


def _told(name: str, module: ModuleType) -> Algorithm:
    missing = [part for part in ("Config", "advantage", "token_loss") if not hasattr(module, part)]
    if missing:
        raise ValueError(
            f"algorithm {name!r} ({module.__name__}) has no {', '.join(missing)}; see CONTRIBUTING.md"
        )
    return Algorithm(
        name=name,
        Config=module.Config,
        advantage=module.advantage,
        token_loss=module.token_loss,
        needs=getattr(module, "needs", lambda config: Needs()),
        verdict=getattr(module, "verdict", lambda numbers, config: "step"),
        update=getattr(module, "update", None),
    )
