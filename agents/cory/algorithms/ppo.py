"""PPO: the clipped surrogate (arXiv:1707.06347, eq. 7) over response tokens, with a clipped value loss.

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cory.algorithms.base import Batches, ClippedConfig, GAEConfig, Rewards, States, Verdict
from cory.functional.advantage import Advantage, gae, whiten
from cory.runtime.arithmetic import running_sums
from cory.token_loss import TokenLoss, Tokens, drift

if TYPE_CHECKING:
    from torch import Tensor

    from cory.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Config(ClippedConfig, GAEConfig):
    """Settings of the PPO update; defaults are those of the CORY paper (table 1)."""

    value_clip: float = 0.2
    """New values are clipped to this distance from the old ones."""

    value_coef: float = 0.1
    """Weight of the value loss relative to the policy loss."""


def advantage(batches: Batches, rewards: Rewards, config: GAEConfig, states: States) -> dict[str, Advantage]:
    """GAE per seat. Returns are those before whitening; no state is kept."""
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
    """The advantage [B] that the released code has behind each response when it whitens rewards.

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
    """-min(ratio A, clip(ratio) A) of each token, ratio = pi / pi_old."""
    ratio_K = (logprob_K - old_logprob_K).exp()
    return -(ratio_K * advantage_K).minimum(ratio_K.clamp(1 - clip, 1 + clip) * advantage_K)


def value_loss(value_K: Tensor, old_value_K: Tensor, return_K: Tensor, *, clip: float) -> Tensor:
    """max((V - R)^2, (clip(V) - R)^2) / 2 of each token; clip(V) is within `clip` of the old value."""
    clipped_K = value_K.clamp(old_value_K - clip, old_value_K + clip)
    return (value_K - return_K).square().maximum((clipped_K - return_K).square()) / 2


def with_metrics(policy_K: Tensor, tokens: Tokens, config: ClippedConfig) -> TokenLoss:
    """The policy loss of each token as a `TokenLoss`: what is reported of it is the same with any values."""
    metrics, maxima = drift(tokens)
    clipped_K = metrics["ratio"].clamp(1 - config.clip, 1 + config.clip)
    clipped = (tokens.advantage_K * metrics["ratio"] > tokens.advantage_K * clipped_K).float()
    return TokenLoss(policy_K, metrics | {"policy_loss": policy_K.detach(), "clip_share": clipped}, maxima)


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """Policy loss + value_coef * value loss - entropy_coef * entropy of each token."""
    policy_K = policy_loss(tokens.logprob_K, tokens.old_logprob_K, tokens.advantage_K, clip=config.clip)
    value_K = value_loss(tokens.value_K, tokens.old_value_K, tokens.return_K, clip=config.value_clip)
    loss_K = policy_K + config.value_coef * value_K
    if config.entropy_coef:
        loss_K = loss_K - config.entropy_coef * tokens.entropy_K
    policy = with_metrics(policy_K, tokens, config)
    return TokenLoss(loss_K, policy.metrics | {"value_loss": value_K.detach()}, policy.maxima)


def verdict(metrics: Mapping[str, float], config: ClippedConfig) -> Verdict:
    """Skip a minibatch above `ratio_guard`; stop one that is 1.5 `target_kl` away from the old policy."""
    if config.ratio_guard is not None and metrics["ratio"] > config.ratio_guard:
        return "skip"
    if config.target_kl is not None and metrics["approx_kl"] > 1.5 * config.target_kl:
        return "stop"
    return "step"
