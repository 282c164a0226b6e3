"""The contract of an algorithm and what its hooks exchange with the learner.

Shapes: T response tokens, K chosen tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

from cory.token_loss import TokenLoss

Verdict = Literal["step", "skip", "stop"]
"""What to do with a minibatch's gradient: take the step, skip it, or end this policy's update."""

AlgorithmState = dict[str, float]
"""Numbers an algorithm keeps between iterations. They belong to the policy, move with it through every
exchange and are saved in its checkpoints."""


class Requirements(NamedTuple):
    """What an algorithm needs from the policies and the games."""

    values: bool = True
    """Whether it uses a value head."""

    group: int = 1
    """Games per query; the games of a group are neighbours in every batch."""

    scaled_payoffs: bool = True
    """Whether it can learn from payoffs that `payoff_scaling` has changed."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm module's hooks, with defaults for those it leaves out."""

    name: str

    Config: type[Any]
    """Frozen dataclass; a field `epochs` is the number of passes over a batch (default 1)."""

    advantage: Callable[..., dict[str, Any]]
    """(batches, rewards, config, states) -> an `Advantage` per seat. All but `config` are keyed by seat;
    `states` holds the `AlgorithmState` of the policy in that seat and may be written to."""

    token_loss: Callable[..., TokenLoss]
    """(tokens, config) -> loss per token; pure, called chunk by chunk."""

    needs: Callable[[Any], Requirements]
    """(config) -> requirements; by default a value head and single games."""

    verdict: Callable[[Mapping[str, float], Any], Verdict]
    """(means over a minibatch, config) -> what to do with its gradient; by default always a step."""

    update: Callable[..., dict[str, float]] | None
    """(learner, batch, advantage, config) -> metrics, in place of the learner's passes of token losses."""

    @classmethod
    def from_module(cls, name: str, module: ModuleType) -> "Algorithm":
        """Collect the hooks of `module`; ValueError if a mandatory one is missing."""
        missing = [part for part in ("Config", "advantage", "token_loss") if not hasattr(module, part)]
        if missing:
            raise ValueError(
                f"algorithm {name!r} ({module.__name__}) has no {', '.join(missing)}; see CONTRIBUTING.md"
            )
        return cls(
            name=name,
            Config=module.Config,
            advantage=module.advantage,
            token_loss=module.token_loss,
            needs=getattr(module, "needs", lambda config: Requirements()),
            verdict=getattr(module, "verdict", lambda metrics, config: "step"),
            update=getattr(module, "update", None),
        )
