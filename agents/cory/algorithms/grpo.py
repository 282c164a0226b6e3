"""GRPO (arXiv:2402.03300, eq. 3): PPO's clipped surrogate, advantages from groups, no value head.

GRPO usually has the KL penalty in the loss: `--kl.place loss --kl.kind k3` (its eq. 4). In the rewards, the
default place, `scale` raises differences in KL alone to full size where payoffs are equal. Means are over all
tokens of a minibatch, as for every algorithm here; the paper averages over each response first, which gives
tokens of short responses more weight.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from cory.algorithms.base import Batches, ClippedConfig, Requirements, Rewards, States
from cory.algorithms.ppo import policy_loss, verdict, with_metrics
from cory.functional.advantage import Advantage, group_standardised, per_response, totals
from cory.token_loss import TokenLoss, Tokens

__all__ = ["Config", "advantage", "needs", "token_loss", "verdict"]


@dataclass(frozen=True, kw_only=True)
class Config(ClippedConfig):
    """Settings of PPO's surrogate and the groups."""

    group: int = 4
    """Games per query; advantages are standardised within this group."""

    scale: bool = True
    """Whether advantages are divided by the standard deviation of their group (off: arXiv:2503.20783)."""


def needs(config: Config) -> Requirements:
    """Require groups and no value head."""
    return Requirements(values=False, group=config.group)


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """(R_i - mean R) / std R over the group, at every token of response i.

    R is the sum of a response's token rewards: the payoff minus, with the KL penalty in the reward, the
    penalty of the whole response.
    """
    advantages = {}
    for seat, batch in batches.items():
        totals_B = totals(rewards[seat], batch.mask_BT)
        advantage_B = group_standardised(totals_B, group=config.group, scale=config.scale)
        advantages[seat] = per_response(advantage_B, rewards[seat], batch.mask_BT)
    return advantages


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """-min(ratio A, clip(ratio) A) - entropy_coef * entropy of each token."""
    policy_K = policy_loss(tokens.logprob_K, tokens.old_logprob_K, tokens.advantage_K, clip=config.clip)
    loss = with_metrics(policy_K, tokens, config)
    if config.entropy_coef:
        loss = loss._replace(loss_K=loss.loss_K - config.entropy_coef * tokens.entropy_K)
    return loss
