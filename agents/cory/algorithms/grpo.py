"""GRPO (arXiv:2402.03300, eq. 3): PPO's clipped surrogate, advantages from groups, no value head.

GRPO usually prices KL in the loss: `--kl.place loss --kl.kind k3` (its eq. 4). Means are over all tokens of a
minibatch, as everywhere here; the paper takes them over each response first, so its short responses weigh
more.

Shapes: B games, T response tokens, K chosen tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from cory.functional.advantage import Advantage, group_standardised, per_response, totals
from cory.algorithms.base import AlgorithmState, Requirements, Verdict
from cory.token_loss import TokenLoss, Tokens
from cory.algorithms import ppo
from cory.algorithms.reinforce import check_entropy_coef
from cory.algorithms.rloo import check_group
from cory.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the GRPO update."""

    group: int = 4
    """Games of one query, standardised together."""

    scale: bool = True
    """Whether advantages are divided by their group's deviation; off, easy and hard queries weigh as they
    pay (arXiv:2503.20783)."""

    epochs: int = 4
    """Passes over each batch."""

    clip: float = 0.2
    """Ratios are held inside [1 - clip, 1 + clip]."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    target_kl: float | None = None
    """The update of an iteration ends once a minibatch has moved from the old policy by 1.5 times this many
    nats per token (`approx_kl`); none = never."""

    ratio_guard: float | None = None
    """A minibatch whose mean ratio exceeds this is left out; none = never."""

    def __post_init__(self) -> None:
        check_group(self.group, "GRPO")
        check_entropy_coef(self.entropy_coef)
        if self.epochs < 1:
            raise ValueError(f"algorithm.epochs is {self.epochs}; GRPO needs at least 1")
        _ = self.surrogate  # refuses the rest

    @property
    def surrogate(self) -> ppo.Config:
        """The PPO that this is, once advantages are known: one that learns no values."""
        return ppo.Config(
            clip=self.clip,
            value_coef=0.0,
            entropy_coef=self.entropy_coef,
            target_kl=self.target_kl,
            ratio_guard=self.ratio_guard,
        )


def needs(config: Config) -> Requirements:
    """Groups, no value head."""
    return Requirements(values=False, group=config.group)


def advantage(
    batches: Mapping[str, Batch],
    rewards: Mapping[str, Tensor],
    config: Config,
    states: Mapping[str, AlgorithmState],
) -> dict[str, Advantage]:
    """(R_i - mean R) / std R over the group at every token of response i, R the sum of its token rewards.

    R is the payoff less the price of the whole response's KL, where KL is priced in the reward.
    """
    advantages = {}
    for seat, batch in batches.items():
        totals_B = totals(rewards[seat], batch.mask_BT)
        advantage_B = group_standardised(totals_B, group=config.group, scale=config.scale)
        advantages[seat] = per_response(advantage_B, rewards[seat], batch.mask_BT)
    return advantages


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """-min(ratio A, clip(ratio) A) - entropy_coef * entropy."""
    loss = ppo.token_loss(tokens, config.surrogate)
    return loss._replace(metrics={n: x for n, x in loss.metrics.items() if n != "value_loss"})


def verdict(metrics: Mapping[str, float], config: Config) -> Verdict:
    """PPO's: skip what the ratio guard refuses, stop past `target_kl`."""
    return ppo.verdict(metrics, config.surrogate)
