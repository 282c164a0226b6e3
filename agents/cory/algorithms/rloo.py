"""RLOO (arXiv:2402.14740, eq. 8): REINFORCE whose baseline is what the same query earned in other games.

Shapes: B games, T response tokens, K chosen tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from cory.functional.advantage import Advantage, leave_one_out, per_response, totals
from cory.algorithms.base import AlgorithmState, Requirements
from cory.token_loss import TokenLoss, Tokens
from cory.algorithms.reinforce import check_entropy_coef, policy_gradient
from cory.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Knobs of RLOO."""

    group: int = 4
    """Games of one query; the others of a group are each one's baseline."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    def __post_init__(self) -> None:
        check_group(self.group, "RLOO")
        check_entropy_coef(self.entropy_coef)


def check_group(group: int, method: str) -> None:
    """Refuse groups in which nobody is left to compare with."""
    if group < 2:
        raise ValueError(
            f"algorithm.group is {group}; {method} compares games of one query: give 2 or more, or take "
            "reinforce or ppo"
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
    """R_i - mean of the group's other R_j at every token of response i, R the sum of its token rewards.

    R is the payoff less the price of the whole response's KL, where KL is priced in the reward.
    """
    advantages = {}
    for seat, batch in batches.items():
        advantage_B = leave_one_out(totals(rewards[seat], batch.mask_BT), group=config.group)
        advantages[seat] = per_response(advantage_B, rewards[seat], batch.mask_BT)
    return advantages


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """-A log pi - entropy_coef * entropy."""
    return policy_gradient(tokens, entropy_coef=config.entropy_coef)
