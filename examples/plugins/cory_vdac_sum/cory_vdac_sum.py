"""VDAC-sum (arXiv:2007.12306): every advantage is the team's return less the sum of the seats' values."""

from dataclasses import dataclass

import torch

from cory.functional.advantage import Advantage, undiscounted
from cory.token_loss import TokenLoss


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the update."""

    value_coef: float = 0.1
    """Weight of the value loss."""


def advantage(batches, rewards, config, states):
    """A = return to go - V_tot; V_tot = the seat's value + first-token values of the seats before it."""
    advantages, earlier_B1 = {}, 0.0
    for seat, batch in batches.items():
        return_BT = undiscounted(rewards[seat], batch.mask_BT)
        target_BT = return_BT - earlier_B1  # what the seat's own value has to add
        advantages[seat] = Advantage(
            advantage_BT=torch.where(batch.mask_BT, target_BT - batch.values_BT, 0.0),
            return_BT=torch.where(batch.mask_BT, target_BT, 0.0),
        )
        earlier_B1 = earlier_B1 + batch.values_BT[:, :1]
    return advantages


def token_loss(tokens, config):
    """-A log pi + value_coef (V - target)^2 of each token."""
    policy_K = -tokens.advantage_K * tokens.logprob_K
    value_K = (tokens.value_K - tokens.return_K).square()
    metrics = {"policy_loss": policy_K.detach(), "value_loss": value_K.detach()}
    return TokenLoss(policy_K + config.value_coef * value_K, metrics, maxima={})
