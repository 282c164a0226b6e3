"""What a loss asks of the softmax over the vocabulary, and its gradient, in few passes over the logits.

A pass over N x V numbers in main memory costs up to a tenth of the product that made them. So rows are worked
on in blocks that stay in the processor's cache, and one array of that size is kept: the probabilities, which
become the gradient in place.

Shapes: N tokens, V vocabulary.
"""

from collections.abc import Iterator
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


def statistics(logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None = None) -> Statistics:
    """log p(token)        entropy = -sum_v p log p        KL = sum_v p (log p - log p_ref)

    Gradients flow to `logits_NV`, which must be finite, and once only.
    """
    return Statistics(*_Statistics.apply(logits_NV, token_N, ref_logits_NV))


def blocks(logits_NV: Tensor) -> Iterator[slice]:
    """Rows that are worked on together."""
    N, V = logits_NV.shape
    size = max(1, BLOCK // V) if logits_NV.device.type == "cpu" else max(1, N)
    return (slice(start, start + size) for start in range(0, N, size))


def precise(logits_NV: Tensor) -> torch.dtype:
    """What is computed in: float32, or float64 where the logits are."""
    return torch.promote_types(logits_NV.dtype, torch.float32)


def softmax(logits_NV: Tensor, out: Tensor | None = None) -> Tensor:
    """p in float32, or float64 where the logits are."""
    return torch.softmax(logits_NV, -1, dtype=precise(logits_NV), out=out)


def log_normaliser(logits_NV: Tensor, p_NV: Tensor) -> Tensor:
    """log sum_v exp z_v = max_v z_v - log max_v p_v  [N, 1], where p is the softmax of z: no exponential is
    taken twice."""
    return logits_NV.amax(1, keepdim=True).to(p_NV) - p_NV.amax(1, keepdim=True).log()


def log_softmax(logits_NV: Tensor) -> Tensor:
    """By the very steps of `statistics`: of equal logits it is equal to the last bit."""
    return logits_NV - log_normaliser(logits_NV, softmax(logits_NV))


class _Statistics(torch.autograd.Function):
    """With p the softmax of the logits, H its entropy and g the gradients of the first three results:

    dz_v = g1 (1[v = token] - p_v) - g2 p_v (log p_v + H) + g3 p_v (log p_v - log p_ref,v - KL)
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None
    ) -> tuple[Tensor, ...]:
        told_4N = logits_NV.new_zeros(4, len(token_N), dtype=precise(logits_NV))
        in_place = told_4N.dtype == logits_NV.dtype
        kept_NV = torch.empty_like(logits_NV) if ctx.needs_input_grad[0] else None
        for at in blocks(logits_NV):
            z_NV = logits_NV[at]
            p_NV = softmax(z_NV, out=kept_NV[at] if in_place and kept_NV is not None else None)
            logp_NV, token_N1 = z_NV - log_normaliser(z_NV, p_NV), token_N[at, None]
            told_4N[0, at] = logp_NV.gather(1, token_N1).squeeze(1)
            told_4N[1, at] = -torch.linalg.vecdot(p_NV, logp_NV)
            if ref_logits_NV is not None:
                ref_logp_NV = log_softmax(ref_logits_NV[at])
                told_4N[2, at] = torch.linalg.vecdot(p_NV, logp_NV.sub_(ref_logp_NV))
                told_4N[3, at] = ref_logp_NV.gather(1, token_N1).squeeze(1)
            if kept_NV is not None and not in_place:
                kept_NV[at] = p_NV
        told = told_4N.unbind()
        ctx.save_for_backward(token_N, *told[1:3], ref_logits_NV)
        ctx.p_NV = kept_NV
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(told[3])
        return told

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any,
        of_logprob_N: Tensor | None,
        of_entropy_N: Tensor | None,
        of_kl_N: Tensor | None,
        of_ref_logprob_N: None,
    ) -> tuple[Tensor, None, None]:
        token_N, entropy_N, kl_N, ref_logits_NV = ctx.saved_tensors
        grad_NV, ctx.p_NV = ctx.p_NV, None
        chosen_N = torch.zeros_like(entropy_N) if of_logprob_N is None else of_logprob_N
        for at in blocks(grad_NV):
            p_NV, slope_NV = grad_NV[at].to(entropy_N.dtype), -chosen_N[at, None]
            if of_entropy_N is not None or of_kl_N is not None:
                logp_NV = p_NV.clamp(min=torch.finfo(p_NV.dtype).tiny).log()
            if of_entropy_N is not None:
                slope_NV = slope_NV - of_entropy_N[at, None] * (logp_NV + entropy_N[at, None])
            if of_kl_N is not None and ref_logits_NV is not None:
                logp_NV -= log_softmax(ref_logits_NV[at])
                slope_NV = slope_NV + of_kl_N[at, None] * (logp_NV - kl_N[at, None])
            torch.mul(p_NV, slope_NV, out=p_NV)
            if p_NV.dtype != grad_NV.dtype:
                grad_NV[at] = p_NV
        grad_NV.scatter_add_(1, token_N[:, None], chosen_N[:, None].to(grad_NV.dtype))
        return grad_NV, None, None
