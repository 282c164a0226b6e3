"""Settings of the critic."""

from dataclasses import dataclass
from importlib import import_module

from cory.runtime.checks import check_fields


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
        check_fields(self, "critic", rate="lr", count="epochs")
