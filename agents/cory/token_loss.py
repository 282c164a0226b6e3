"""What a per-token loss receives and returns, and what is reported of passes over tokens.

Shapes: K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Tokens(NamedTuple):
    """Inputs of a loss for K chosen tokens; gradients flow through the first four."""

    logprob_K: Tensor
    value_K: Tensor
    entropy_K: Tensor
    """Nats, with a gradient; add it with a positive coefficient to keep the policy random."""
    exact_kl_K: Tensor | None
    """KL(policy || reference) over the vocabulary; None unless `kl.kind` is full and `kl.place` is loss."""

    old_logprob_K: Tensor
    ref_logprob_K: Tensor
    old_value_K: Tensor
    advantage_K: Tensor
    return_K: Tensor


class TokenLoss(NamedTuple):
    """Loss and statistics of each token; the learner takes the means over tokens."""

    loss_K: Tensor
    """To minimise."""

    metrics: dict[str, Tensor]
    """Quantities whose means over tokens are reported, each [K] without gradient."""

    maxima: dict[str, Tensor]
    """Quantities whose largest value is reported, likewise."""


def drift(tokens: Tokens) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Entropy and the distance from the old policy: `metrics` and `maxima` of a loss.

    ratio = pi / pi_old        approx_kl = (log pi - log pi_old)^2 / 2
    """
    log_ratio_K = (tokens.logprob_K - tokens.old_logprob_K).detach()
    ratio_K = log_ratio_K.exp()
    metrics = {
        "entropy": tokens.entropy_K.detach(),
        "ratio": ratio_K,
        "approx_kl": log_ratio_K.square() / 2,
    }
    return metrics, {"ratio_deviation": (ratio_K - 1).abs()}


def check_loss(loss: object, tokens: Tokens, source: object) -> None:
    """Raise ValueError unless `loss`, returned by `source`, is the `TokenLoss` of these tokens."""
    wanted = f"TokenLoss(loss_K, metrics, maxima), with loss_K of shape ({len(tokens.logprob_K)},)"
    name = getattr(getattr(source, "func", source), "__module__", source)
    if not isinstance(loss, TokenLoss):
        raise ValueError(f"token_loss of {name} returned {type(loss).__name__}; return {wanted}")
    if loss.loss_K.shape != tokens.logprob_K.shape:
        shape = tuple(loss.loss_K.shape)
        raise ValueError(f"token_loss of {name} returned a loss of shape {shape}; return {wanted}")
    if tokens.logprob_K.requires_grad and not loss.loss_K.requires_grad:
        raise ValueError(
            f"token_loss of {name} returned a loss without a gradient; compute it from logprob_K, value_K, "
            "entropy_K or exact_kl_K of its tokens"
        )
    for quantity, value in (*dict(loss.metrics).items(), *dict(loss.maxima).items()):
        if getattr(value, "shape", None) != loss.loss_K.shape:
            raise ValueError(
                f"token_loss of {name} reports {quantity!r} as {value!r:.80}; give one number a token, of "
                f"shape ({len(loss.loss_K)},), whose mean or largest value is reported"
            )


LossFunction = Callable[[Tokens], TokenLoss]
"""A per-token loss with its configuration bound."""


class PartMetrics(NamedTuple):
    """Metrics of one pass, and what is needed to combine them with others."""

    means: dict[str, float]
    maxima: dict[str, float]
    tokens: int


def merge(parts: Sequence[PartMetrics]) -> PartMetrics:
    """Means over the tokens of all parts, and the largest maxima: the same however a batch was split."""
    if len(parts) == 1:
        return parts[0]
    tokens = sum(part.tokens for part in parts)
    means = {name: sum(part.means[name] * part.tokens for part in parts) / tokens for name in parts[0].means}
    maxima = {name: max(part.maxima[name] for part in parts) for name in parts[0].maxima}
    return PartMetrics(means, maxima, tokens)


def combine(parts: Sequence[PartMetrics]) -> dict[str, float]:
    """The metrics of all parts together."""
    whole = merge(parts)
    return whole.means | whole.maxima
