"""GRPO (arXiv:2402.03300, eq. 3): PPO's clipped surrogate, advantages from groups, no value head.

GRPO usually has the KL penalty in the loss: `--kl.place loss --kl.kind k3` (its eq. 4). Means are over all
tokens of a minibatch, as for every algorithm here; the paper averages over each response first, which gives
tokens of short responses more weight.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cory.algorithms import ppo
from cory.algorithms.base import Batches, Requirements, Rewards, States, Verdict
from cory.functional.advantage import Advantage, group_standardised, per_response, totals
from cory.runtime.checks import check_fields
from cory.token_loss import TokenLoss, Tokens


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the GRPO update."""

    group: int = 4
    """Games per query; advantages are standardised within this group."""

    scale: bool = True
    """Whether advantages are divided by the standard deviation of their group (off: arXiv:2503.20783)."""

    epochs: int = 4
    """Passes over each batch."""

    clip: float = 0.2
    """Probability ratios are clipped to [1 - clip, 1 + clip]."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    target_kl: float | None = None
    """The update of an iteration stops once a minibatch is 1.5 times this many nats per token away from the
    old policy (`approx_kl`); none = never."""

    ratio_guard: float | None = None
    """A minibatch whose mean ratio exceeds this is skipped; none = never."""

    def __post_init__(self) -> None:
        check_fields(self, "algorithm", group="group", count="epochs")
        _ = self.surrogate  # checks the other fields

    @property
    def surrogate(self) -> ppo.Config:
        """The PPO settings with the same loss, given the advantages: without a value loss."""
        return ppo.Config(
            clip=self.clip,
            value_coef=0.0,
            entropy_coef=self.entropy_coef,
            target_kl=self.target_kl,
            ratio_guard=self.ratio_guard,
        )


def needs(config: Config) -> Requirements:
    """Require groups and no value head."""
    return Requirements(values=False, group=config.group)


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """Compute (R_i - mean R) / std R over the group, at every token of response i.

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
    """Return -min(ratio A, clip(ratio) A) - entropy_coef * entropy of each token."""
    loss = ppo.token_loss(tokens, config.surrogate)
    return loss._replace(metrics={n: x for n, x in loss.metrics.items() if n != "value_loss"})


def verdict(metrics: Mapping[str, float], config: Config) -> Verdict:
    """Decide as PPO does: skip above `ratio_guard`, stop beyond `target_kl`."""
    return ppo.verdict(metrics, config.surrogate)
