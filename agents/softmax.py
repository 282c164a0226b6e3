"""What a loss asks of the softmax over the vocabulary, and its gradient, in few passes over the logits.

Reading N x V numbers from main memory takes up to a tenth of the product that made them. So rows are worked
on in blocks that stay in the processor's cache, and nothing of that size is kept beside the logits: where a
gradient is wanted the probabilities take their place, and the gradient theirs.

Shapes: N tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 20
"""Elements of a block on the CPU (4 MiB); other devices take all rows at once."""


class Statistics(NamedTuple):
    """Of each token's distribution; float32 or more. Without a reference the last two are 0."""

    logprob_N: Tensor
    entropy_N: Tensor
    """Nats."""
    kl_N: Tensor
    """KL(this || reference) in nats."""
    ref_logprob_N: Tensor
    """Without gradient."""


class Softmax(NamedTuple):
    """p_v = exp(z_v - log Z). The normaliser comes in two parts: log Z = highest logit - log of its p."""

    p_NV: Tensor
    highest_N1: Tensor
    log_highest_p_N1: Tensor

    @property
    def log_normaliser_N1(self) -> Tensor:
        return self.highest_N1 - self.log_highest_p_N1


def statistics(
    logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None = None, *, of_kl: bool = True
) -> Statistics:
    """log p(token)        entropy = -sum_v p log p        KL = sum_v p (log p - log p_ref)

    Gradients flow to `logits_NV`, which must be finite, once only; that of the KL, for which the reference's
    logits are held, where it is asked for (`of_kl`). **Where it wants one it is used up**, its memory written
    over: it must be a tensor of the caller's own, not a view of weights.
    """
    return Statistics(*_Statistics.apply(logits_NV, token_N, ref_logits_NV, of_kl))


def blocks(logits_NV: Tensor) -> Iterator[slice]:
    """Rows that are worked on together."""
    N, V = logits_NV.shape
    size = max(1, BLOCK // V) if logits_NV.device.type == "cpu" else max(1, N)
    return (slice(start, start + size) for start in range(0, N, size))


def precise(logits_NV: Tensor) -> torch.dtype:
    """What is computed in: float32, or float64 where the logits are."""
    return torch.promote_types(logits_NV.dtype, torch.float32)


def softmax(logits_NV: Tensor) -> Softmax:
    """In float32, or float64 where the logits are; no exponential is taken twice."""
    p_NV = torch.softmax(logits_NV, -1, dtype=precise(logits_NV))
    return Softmax(p_NV, logits_NV.amax(1, keepdim=True).to(p_NV), p_NV.amax(1, keepdim=True).log())


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None, of_kl: bool
    ) -> tuple[Tensor, ...]:
        told = taken(logits_NV, token_N, ref_logits_NV, spend=ctx.needs_input_grad[0])
        ctx.p_NV = logits_NV.detach() if ctx.needs_input_grad[0] else None
        remember(ctx, told, token_N, ref_logits_NV, of_kl=of_kl)
        return tuple(told)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *of_told: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        p_NV, ctx.p_NV = ctx.p_NV, None
        return gradient(p_NV, *ctx.saved_tensors, of_told), None, None, None


def remember(
    ctx: Any, told: Statistics, token_N: Tensor, ref_logits_NV: Tensor | None, *more: Tensor, of_kl: bool
) -> None:
    """What `gradient` asks for, beside the probabilities, and more behind it; what has no gradient."""
    ctx.save_for_backward(token_N, told.entropy_N, told.kl_N, ref_logits_NV if of_kl else None, *more)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(told.ref_logprob_N, *([] if of_kl else [told.kl_N]))


def taken(logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None, *, spend: bool) -> Statistics:
    """The statistics themselves; where logits may be spent, probabilities take their place."""
    told_4N = logits_NV.new_zeros(4, len(token_N), dtype=precise(logits_NV))
    for at in blocks(logits_NV):
        z_NV, token_N1 = logits_NV[at].to(told_4N.dtype), token_N[at, None]
        one = softmax(z_NV)
        log_normaliser_N1 = one.log_normaliser_N1
        told_4N[0, at] = (z_NV.gather(1, token_N1) - log_normaliser_N1)[:, 0]
        told_4N[1, at] = log_normaliser_N1[:, 0] - torch.linalg.vecdot(one.p_NV, z_NV)
        if ref_logits_NV is not None:
            ref_NV = ref_logits_NV[at].to(told_4N.dtype)
            ref = softmax(ref_NV)
            told_4N[2, at] = torch.linalg.vecdot(one.p_NV, z_NV - ref_NV) - apart(one, ref)[:, 0]
            told_4N[3, at] = (ref_NV.gather(1, token_N1) - ref.log_normaliser_N1)[:, 0]
        if spend:
            logits_NV[at] = one.p_NV
    return Statistics(*told_4N.unbind())


def gradient(
    p_NV: Tensor,
    token_N: Tensor,
    entropy_N: Tensor,
    kl_N: Tensor,
    ref_logits_NV: Tensor | None,
    of_told: Sequence[Tensor | None],
) -> Tensor:
    """That of the logits, in the place of their probabilities. With H the entropy and g the gradients of the
    first three statistics:

    dz_v = g1 (1[v = token] - p_v) - g2 p_v (log p_v + H) + g3 p_v (log p_v - log p_ref,v - KL)
    """
    of_logprob_N, of_entropy_N, of_kl_N, _ = of_told
    chosen_N = torch.zeros_like(entropy_N) if of_logprob_N is None else of_logprob_N
    for at in blocks(p_NV):
        block_NV, slope_NV = p_NV[at].to(entropy_N.dtype), -chosen_N[at, None]
        if of_entropy_N is not None or of_kl_N is not None:
            logp_NV = block_NV.clamp(min=torch.finfo(block_NV.dtype).tiny).log()
        if of_entropy_N is not None:
            slope_NV = slope_NV - of_entropy_N[at, None] * (logp_NV + entropy_N[at, None])
        if of_kl_N is not None and ref_logits_NV is not None:
            ref_NV = ref_logits_NV[at].to(entropy_N.dtype)
            logp_NV -= ref_NV - softmax(ref_NV).log_normaliser_N1
            slope_NV = slope_NV + of_kl_N[at, None] * (logp_NV - kl_N[at, None])
        torch.mul(block_NV, slope_NV, out=p_NV[at])
    p_NV[torch.arange(len(token_N), device=token_N.device), token_N] += chosen_N.to(p_NV.dtype)
    return p_NV


def apart(one: Softmax, other: Softmax) -> Tensor:
    """log Z - log Z' [N, 1], by differences of like numbers: 0 to the last bit where the logits are equal."""
    return (one.highest_N1 - other.highest_N1) - (one.log_highest_p_N1 - other.log_highest_p_N1)
