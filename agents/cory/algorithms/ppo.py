"""PPO: the clipped surrogate (arXiv:1707.06347, eq. 7) over response tokens, with a clipped value loss.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cory.algorithms.base import Batches, Rewards, States, Verdict
from cory.algorithms.reinforce import drift
from cory.functional.advantage import Advantage, gae, whiten
from cory.runtime.arithmetic import running_sums
from cory.runtime.checks import check_fields
from cory.token_loss import TokenLoss, Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from cory.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the PPO update; defaults are those of the CORY paper (table 1)."""

    epochs: int = 4
    """Passes over each batch."""

    clip: float = 0.2
    """Probability ratios are clipped to [1 - clip, 1 + clip]."""

    value_clip: float = 0.2
    """New values are clipped to this distance from the old ones."""

    value_coef: float = 0.1
    """Weight of the value loss relative to the policy loss."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    target_kl: float | None = None
    """The update of an iteration stops once a minibatch is 1.5 times this many nats per token away from the
    old policy (`approx_kl`); none = never."""

    ratio_guard: float | None = None
    """A minibatch whose mean ratio exceeds this is skipped (the released code: 10); none = never."""

    gamma: float = 1.0
    """Discount per token."""

    lam: float = 0.95
    """GAE lambda."""

    whiten: bool = True
    """Whether advantages are shifted and scaled to mean 0 and standard deviation 1 over the batch."""

    whiten_rewards: Literal["none", "tokens", "released"] = "none"
    """`tokens`: token rewards are first scaled to standard deviation 1 over the batch; their mean stays.
    `released`: the padding behind each response is scaled too, as in the released code, and its spurious
    rewards leak into every advantage."""

    def __post_init__(self) -> None:
        check_fields(self, "algorithm", fraction="clip", positive="value_clip target_kl", count="epochs")
        check_fields(self, "algorithm", weight="entropy_coef", above_1="ratio_guard", share="gamma lam")


def advantage(batches: Batches, rewards: Rewards, config: Config, states: States) -> dict[str, Advantage]:
    """Compute GAE per seat. Returns are those before whitening; no state is kept."""
    advantages = {}
    for seat, batch in batches.items():
        rewards_BT, mask_BT, beyond_B = rewards[seat], batch.mask_BT, None
        if config.whiten_rewards == "released":
            beyond_B = leaked_advantage(rewards_BT, batch, decay=config.gamma * config.lam)
        if config.whiten_rewards != "none":
            rewards_BT = whiten(rewards_BT, mask_BT, shift_mean=False)
        raw = gae(rewards_BT, batch.values_BT, mask_BT, gamma=config.gamma, lam=config.lam, beyond_B=beyond_B)
        advantages[seat] = (
            raw._replace(advantage_BT=whiten(raw.advantage_BT, mask_BT)) if config.whiten else raw
        )
    return advantages


def leaked_advantage(rewards_BT: Tensor, batch: Batch, *, decay: float) -> Tensor:
    """Compute the advantage [B] that the released code has behind each response when it whitens rewards.

    Its rewards of 0 in the padding become c = m - m / sd, and a row with n columns of padding (up to the
    batch's longest prompt + response) sums them to c (1 + decay + ... + decay^(n-1)).
    """
    import torch

    chosen_N = rewards_BT[batch.mask_BT]
    spurious = chosen_N.mean() * (1 - (chosen_N.var() + 1e-8).rsqrt())
    length_B = batch.prompt_length_B + batch.response_length_B
    padding_B = length_B.max() - length_B
    powers_N = decay ** torch.arange(int(padding_B.max()) + 1, device=length_B.device, dtype=rewards_BT.dtype)
    sums_N = running_sums(powers_N[None])[0] - powers_N
    return spurious * sums_N[padding_B]


def policy_loss(logprob_K: Tensor, old_logprob_K: Tensor, advantage_K: Tensor, *, clip: float) -> Tensor:
    """Return -min(ratio A, clip(ratio) A) of each token, ratio = pi / pi_old."""
    ratio_K = (logprob_K - old_logprob_K).exp()
    return -(ratio_K * advantage_K).minimum(ratio_K.clamp(1 - clip, 1 + clip) * advantage_K)


def value_loss(value_K: Tensor, old_value_K: Tensor, return_K: Tensor, *, clip: float) -> Tensor:
    """Return max((V - R)^2, (clip(V) - R)^2) / 2 of each token; clip(V) is within `clip` of the old value."""
    clipped_K = value_K.clamp(old_value_K - clip, old_value_K + clip)
    return (value_K - return_K).square().maximum((clipped_K - return_K).square()) / 2


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """Return policy loss + value_coef * value loss - entropy_coef * entropy of each token."""
    policy_K = policy_loss(tokens.logprob_K, tokens.old_logprob_K, tokens.advantage_K, clip=config.clip)
    value_K = value_loss(tokens.value_K, tokens.old_value_K, tokens.return_K, clip=config.value_clip)
    loss_K = policy_K + config.value_coef * value_K
    if config.entropy_coef:
        loss_K = loss_K - config.entropy_coef * tokens.entropy_K
    metrics, maxima = drift(tokens)
    clipped_K = metrics["ratio"].clamp(1 - config.clip, 1 + config.clip)
    metrics |= {
        "policy_loss": policy_K.detach(),
        "value_loss": value_K.detach(),
        "clip_share": (tokens.advantage_K * metrics["ratio"] > tokens.advantage_K * clipped_K).float(),
    }
    return TokenLoss(loss_K, metrics, maxima)


def verdict(metrics: Mapping[str, float], config: Config) -> Verdict:
    """Skip a minibatch above `ratio_guard`; stop one that is 1.5 `target_kl` away from the old policy."""
    if config.ratio_guard is not None and metrics["ratio"] > config.ratio_guard:
        return "skip"
    if config.target_kl is not None and metrics["approx_kl"] > 1.5 * config.target_kl:
        return "stop"
    return "step"
