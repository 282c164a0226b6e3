"""A2C: the advantage actor-critic of arXiv:1602.01783 (section 4, played in step) with GAE.

Shapes: B games, T response tokens, K chosen tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from cory.functional.advantage import Advantage, gae, whiten
from cory.algorithms.base import AlgorithmState
from cory.token_loss import TokenLoss, Tokens
from cory.algorithms.reinforce import check_entropy_coef, policy_gradient
from cory.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the A2C update."""

    epochs: int = 1
    """Passes over each batch; from the second on the games are another policy's and nothing corrects it."""

    value_coef: float = 0.5
    """Weight of the value loss beside the policy loss (the paper's)."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    gamma: float = 1.0
    """Discount per token."""

    lam: float = 1.0
    """Lambda of the advantage estimation; 1 = what was earned less the value (the paper's)."""

    whiten: bool = True
    """Whether advantages get mean 0 and deviation 1 over the batch."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"algorithm.epochs is {self.epochs}; A2C needs at least 1")
        if not 0 <= self.value_coef < float("inf"):
            raise ValueError(f"algorithm.value_coef is {self.value_coef}; give a weight of 0 or more")
        check_entropy_coef(self.entropy_coef)
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"algorithm.{name} is {getattr(self, name)}; choose a value from 0 to 1")


def advantage(
    batches: Mapping[str, Batch],
    rewards: Mapping[str, Tensor],
    config: Config,
    states: Mapping[str, AlgorithmState],
) -> dict[str, Advantage]:
    """GAE per seat. Returns are taken before whitening; no state is kept."""
    advantages = {}
    for seat, batch in batches.items():
        raw = gae(rewards[seat], batch.values_BT, batch.mask_BT, gamma=config.gamma, lam=config.lam)
        white_BT = whiten(raw.advantage_BT, batch.mask_BT) if config.whiten else raw.advantage_BT
        advantages[seat] = raw._replace(advantage_BT=white_BT)
    return advantages


def value_loss(value_K: Tensor, return_K: Tensor) -> Tensor:
    """(V - R)^2 / 2 of each token."""
    return (value_K - return_K).square() / 2


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """-A log pi + value_coef * value loss - entropy_coef * entropy."""
    loss = policy_gradient(tokens, entropy_coef=config.entropy_coef)
    value_K = value_loss(tokens.value_K, tokens.return_K)
    return loss._replace(
        loss_K=loss.loss_K + config.value_coef * value_K,
        metrics={**loss.metrics, "value_loss": value_K.detach()},
    )
