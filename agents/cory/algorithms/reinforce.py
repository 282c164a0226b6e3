"""REINFORCE (Williams 1992, eq. 11) with a running baseline: no value head, one pass over each batch.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cory.algorithms.base import Batches, Requirements, Rewards, Settings, States
from cory.functional.advantage import Advantage, totals, undiscounted
from cory.token_loss import TokenLoss, Tokens, drift

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of the REINFORCE update."""

    decay: float = 0.9
    """Weight of the old baseline in the new one; the rest is the batch's mean reward per response."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""


def needs(config: Config) -> Requirements:
    """Require no value head."""
    return Requirements(values=False)


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """A_t = sum of r_s over s >= t, minus the policy's baseline b (0 in the first iteration).

        b <- mean R at first, then decay b + (1 - decay) mean R        R = sum of a response's token rewards

    The baseline is computed from earlier iterations only, so it does not bias the gradient. It belongs to the
    policy, not to the seat; a policy in several seats has one baseline from all of them.
    """
    import torch

    advantages = {}
    totals_by_state: dict[int, list[Tensor]] = {}
    for seat, batch in batches.items():
        return_BT = undiscounted(rewards[seat], batch.mask_BT)
        advantage_BT = torch.where(batch.mask_BT, return_BT - states[seat].get("baseline", 0.0), 0.0)
        advantages[seat] = Advantage(advantage_BT, return_BT)
        totals_by_state.setdefault(id(states[seat]), []).append(totals(rewards[seat], batch.mask_BT))
    for state in {id(state): state for state in states.values()}.values():
        mean = torch.cat(totals_by_state[id(state)]).mean().item()
        state["baseline"] = config.decay * state.get("baseline", mean) + (1 - config.decay) * mean
    return advantages


def token_loss(tokens: Tokens, config: Any) -> TokenLoss:
    """-A log pi - entropy_coef * entropy of each token, for every `config` with that coefficient.

    Its gradient is the policy gradient; its value has no meaning of its own.
    """
    policy_K = -tokens.advantage_K * tokens.logprob_K
    metrics, maxima = drift(tokens)
    loss_K = policy_K - config.entropy_coef * tokens.entropy_K
    return TokenLoss(loss_K, {"policy_loss": policy_K.detach(), **metrics}, maxima)
