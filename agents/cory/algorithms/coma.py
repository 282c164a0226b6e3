"""Counterfactual credit in a team (COMA: arXiv:1705.08926, eq. 4), learned with PPO's loss.

A seat's advantage is the effect of its response, all else equal. With Q the expected sum of all scores less
the seat's own KL penalty, y_0 the pioneer's response and y_1 the observer's,

    A_0(y_0) = Q(q, y_0) - E_y Q(q, y)         A_1(y_1) = Q(q, y_0, y_1) - E_y Q(q, y_0, y)

**The observer.** The pioneer's score r_0 cancels between the terms, so the observer learns from its rewards
less r_0, by GAE; its value head V_1 then predicts r_1 less its own KL penalty, given its prompt.

**The pioneer.** Its own score and KL penalty are known, and the rest of Q is the critic's prediction at the
observer's first token, to which the observer's KL penalty is added back: the pioneer does not owe it. Its
action is marginalised over samples of its own policy, the G games of one query, each left out of its own
baseline:

    Q_i = r_0 - KL_0 + V_1(first token | q, y_0) + KL_1          A_i = Q_i - mean_{j != i} Q_j

With more observers r_k is the sum from seat k on, and V_1 predicts all of it. Where the observer's prompt
does not hold what Q depends on, as the query of relay, take the central critic (`critic.kind` central).

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from cory.algorithms import ppo
from cory.algorithms.base import Batches, Requirements, Rewards, States, check_undiscounted, expected_score
from cory.algorithms.ppo import token_loss, verdict
from cory.functional.advantage import Advantage, gae, leave_one_out, per_response, totals, whiten

__all__ = ["Config", "advantage", "needs", "token_loss", "verdict"]


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    """PPO's settings and the group size."""

    group: int = 4
    """Games of one query; the others of a group are alternatives the pioneer could have written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_undiscounted(self, "coma")


def needs(config: Config) -> Requirements:
    """Require a value head, groups of games, and payoffs as they are paid."""
    return Requirements(group=config.group, scaled_payoffs=False, payoff="sum")


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """Compute the pioneer's A_i at each of its tokens, and those of observers by GAE on what they can change.

    ValueError if a seat is not paid the sum of all scores.
    """
    import torch

    score_NB = torch.stack([batch.score_B for batch in batches.values()])
    if any(not batch.payoff_B.allclose(score_NB.sum(0), atol=1e-4) for batch in batches.values()):
        raise ValueError(
            "coma shares one score among all seats, which all learn; play it with --payoff cooperative and "
            "without players"
        )
    (pioneer, first), *observers = batches.items()
    q_B = totals(rewards[pioneer], first.mask_BT) - score_NB[1:].sum(0)
    if observers:
        seat, batch = observers[0]
        q_B = q_B + expected_score(rewards[seat], batch)
    credit_B = leave_one_out(q_B, group=config.group)
    advantages = {pioneer: per_response(credit_B, rewards[pioneer], first.mask_BT)}
    for k, (seat, batch) in enumerate(observers, start=1):
        fixed_B1 = score_NB[:k].sum(0)[:, None]
        reward_BT = rewards[seat].scatter_add(1, batch.response_length_B[:, None] - 1, -fixed_B1)
        advantages[seat] = gae(reward_BT, batch.values_BT, batch.mask_BT, gamma=config.gamma, lam=config.lam)
    if not config.whiten:
        return advantages
    white = {seat: whiten(of.advantage_BT, batches[seat].mask_BT) for seat, of in advantages.items()}
    return {seat: of._replace(advantage_BT=white[seat]) for seat, of in advantages.items()}
