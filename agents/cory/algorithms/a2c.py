"""A2C: the synchronous advantage actor-critic (arXiv:1602.01783, section 4) with GAE.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cory.algorithms import reinforce
from cory.algorithms.base import GAEConfig
from cory.algorithms.ppo import advantage
from cory.token_loss import TokenLoss, Tokens

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Config", "advantage", "token_loss", "value_loss"]


@dataclass(frozen=True, kw_only=True)
class Config(GAEConfig):
    """Settings of the A2C update."""

    epochs: int = 1
    """Passes over each batch; from the second on the data is off-policy, and nothing corrects for it."""

    value_coef: float = 0.5
    """Weight of the value loss relative to the policy loss (the paper's)."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    lam: float = 1.0
    """GAE lambda; 1 = the return minus the value (the paper's)."""


def value_loss(value_K: Tensor, return_K: Tensor) -> Tensor:
    """(V - R)^2 / 2 of each token."""
    return (value_K - return_K).square() / 2


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """-A log pi + value_coef * value loss - entropy_coef * entropy of each token."""
    loss = reinforce.token_loss(tokens, config)
    value_K = value_loss(tokens.value_K, tokens.return_K)
    return loss._replace(
        loss_K=loss.loss_K + config.value_coef * value_K,
        metrics={**loss.metrics, "value_loss": value_K.detach()},
    )
