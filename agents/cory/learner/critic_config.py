"""Settings of the critic."""

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """The critic whose values advantages are computed with."""

    kind: str = "own"
    """`own`: that of the algorithm, which is each policy's value head, or for mappo the central critic.
    `central`: one critic for all seats that sees everything; the policies' value heads are then not trained
    (`value_loss` of a policy is reported, not minimised). Or one of your own, made and called as
    `CentralCritic`: `module:Class`, `file.py:Class` or an entry point of `cory.critics`."""

    lr: float = 3e-3
    """Learning rate of the central critic's Adam."""

    epochs: int = 8
    """Its passes over each batch."""

    def __post_init__(self) -> None:
        if self.kind != "own":  # the critics need torch, which settings do without
            import_module("cory.learner.central_critic").critic_class(self.kind)
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"critic.lr is {self.lr}; give a finite number above 0")
        if self.epochs < 1:
            raise ValueError(f"critic.epochs is {self.epochs}; give 1 or more")
