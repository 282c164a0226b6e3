"""Log-probability, entropy and KL of token distributions from their logits, with a memory-lean gradient.

Rows are processed in blocks that fit the processor's cache. Where a gradient is needed, probabilities
overwrite the logits and the gradient overwrites the probabilities, so nothing else of size N x V is held.

Shapes: N tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 1 << 20
"""Elements of a block on the CPU (4 MiB); other devices process all rows at once."""


class LogitStatistics(NamedTuple):
    """Statistics of each token's distribution, float32 or wider. Without a reference the last two are 0."""

    logprob_N: Tensor
    entropy_N: Tensor
    """Nats."""
    kl_N: Tensor
    """KL(policy || reference) in nats."""
    ref_logprob_N: Tensor
    """Without gradient."""


class Softmax(NamedTuple):
    """p_v = exp(z_v - log Z), with log Z = largest logit - log of its probability."""

    p_NV: Tensor
    max_logit_N1: Tensor
    log_max_p_N1: Tensor

    @property
    def log_normaliser_N1(self) -> Tensor:
        """Log Z."""
        return self.max_logit_N1 - self.log_max_p_N1


def logit_statistics(
    logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None = None
) -> LogitStatistics:
    """Log-prob, entropy and KL of each token's distribution.

        log p(token)        entropy = -sum_v p log p        KL = sum_v p (log p - log p_ref)

    Gradients flow to `logits_NV` (finite) once. **If the logits require grad they are overwritten in place**:
    pass a tensor of your own, not a view of weights. In blocks on a CPU, elsewhere `by_autograd`.
    """
    if logits_NV.device.type != "cpu":
        return by_autograd(logits_NV, token_N, ref_logits_NV)
    if logits_NV.requires_grad:  # probabilities that overwrite them must not be rounded
        logits_NV = logits_NV.to(softmax_dtype(logits_NV))
    statistics = _LogitStatistics.apply(logits_NV, token_N, ref_logits_NV)  # type: ignore[no-untyped-call]
    return LogitStatistics(*statistics)


def by_autograd(logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None = None) -> LogitStatistics:
    """The same through `log_softmax` and autograd.

    Holds several N x V tensors until the backward pass and leaves the logits as they are.
    """
    logp_NV = logits_NV.log_softmax(-1, dtype=softmax_dtype(logits_NV))
    p_NV, zero_N = logp_NV.exp(), torch.zeros_like(logp_NV[:, 0])
    logprob_N = logp_NV.gather(1, token_N[:, None])[:, 0]
    entropy_N = -(p_NV * logp_NV).sum(-1)
    if ref_logits_NV is None:
        return LogitStatistics(logprob_N, entropy_N, zero_N, zero_N)
    ref_logp_NV = ref_logits_NV.detach().log_softmax(-1, dtype=logp_NV.dtype)
    kl_N = (p_NV * (logp_NV - ref_logp_NV)).sum(-1)
    return LogitStatistics(logprob_N, entropy_N, kl_N, ref_logp_NV.gather(1, token_N[:, None])[:, 0])


def blocks(logits_NV: Tensor) -> Iterator[slice]:
    """Slices of rows that are processed together."""
    N, V = logits_NV.shape
    size = max(1, BLOCK // V) if logits_NV.device.type == "cpu" else max(1, N)
    return (slice(start, start + size) for start in range(0, N, size))


def softmax_dtype(logits_NV: Tensor) -> torch.dtype:
    """Precision of the softmax: float32, or float64 for float64 logits."""
    return torch.promote_types(logits_NV.dtype, torch.float32)


def softmax(logits_NV: Tensor) -> Softmax:
    """The softmax in float32 (float64 for float64 logits); no exponential is computed twice."""
    p_NV = torch.softmax(logits_NV, -1, dtype=softmax_dtype(logits_NV))
    return Softmax(p_NV, logits_NV.amax(1, keepdim=True).to(p_NV), p_NV.amax(1, keepdim=True).log())


class _LogitStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None
    ) -> tuple[Tensor, ...]:
        statistics = compute(logits_NV, token_N, ref_logits_NV, overwrite=ctx.needs_input_grad[0])
        ctx.p_NV = logits_NV.detach() if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(token_N, statistics.entropy_N, statistics.kl_N, ref_logits_NV)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(statistics.ref_logprob_N)
        return tuple(statistics)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, None]:
        p_NV, ctx.p_NV = ctx.p_NV, None
        token_N, entropy_N, kl_N, ref_logits_NV = ctx.saved_tensors
        return gradient(p_NV, token_N, entropy_N, kl_N, ref_logits_NV, grads), None, None


def compute(
    logits_NV: Tensor, token_N: Tensor, ref_logits_NV: Tensor | None, *, overwrite: bool
) -> LogitStatistics:
    """The statistics themselves; with `overwrite`, probabilities replace the logits in memory."""
    out_4N = logits_NV.new_zeros(4, len(token_N), dtype=softmax_dtype(logits_NV))
    for at in blocks(logits_NV):
        z_NV, token_N1 = logits_NV[at].to(out_4N.dtype), token_N[at, None]
        ours = softmax(z_NV)
        log_normaliser_N1 = ours.log_normaliser_N1
        out_4N[0, at] = (z_NV.gather(1, token_N1) - log_normaliser_N1)[:, 0]
        out_4N[1, at] = log_normaliser_N1[:, 0] - torch.linalg.vecdot(ours.p_NV, z_NV)
        if ref_logits_NV is not None:
            ref_NV = ref_logits_NV[at].to(out_4N.dtype)
            ref = softmax(ref_NV)
            # log Z - log Z' by differences of like terms: exactly 0 where the logits are equal
            shift_N1 = (ours.max_logit_N1 - ref.max_logit_N1) - (ours.log_max_p_N1 - ref.log_max_p_N1)
            out_4N[2, at] = torch.linalg.vecdot(ours.p_NV, z_NV - ref_NV) - shift_N1[:, 0]
            out_4N[3, at] = (ref_NV.gather(1, token_N1) - ref.log_normaliser_N1)[:, 0]
        if overwrite:
            logits_NV[at] = ours.p_NV
    return LogitStatistics(*out_4N.unbind())


def gradient(
    p_NV: Tensor,
    token_N: Tensor,
    entropy_N: Tensor,
    kl_N: Tensor,
    ref_logits_NV: Tensor | None,
    grads: Sequence[Tensor | None],
) -> Tensor:
    """Gradient of the logits, written over their probabilities.

    With H the entropy and g the gradients of the first three statistics:

    dz_v = g1 (1[v = token] - p_v) - g2 p_v (log p_v + H) + g3 p_v (log p_v - log p_ref,v - KL)
    """
    logprob_grad_N, entropy_grad_N, kl_grad_N, _ = grads
    token_grad_N = torch.zeros_like(entropy_N) if logprob_grad_N is None else logprob_grad_N
    for at in blocks(p_NV):
        block_NV, slope_NV = p_NV[at].to(entropy_N.dtype), -token_grad_N[at, None]
        if entropy_grad_N is not None or kl_grad_N is not None:
            logp_NV = block_NV.clamp(min=torch.finfo(block_NV.dtype).tiny).log()
        if entropy_grad_N is not None:
            slope_NV = slope_NV - entropy_grad_N[at, None] * (logp_NV + entropy_N[at, None])
        if kl_grad_N is not None and ref_logits_NV is not None:
            ref_NV = ref_logits_NV[at].to(entropy_N.dtype)
            logp_NV -= ref_NV - softmax(ref_NV).log_normaliser_N1
            slope_NV = slope_NV + kl_grad_N[at, None] * (logp_NV - kl_N[at, None])
        torch.mul(block_NV, slope_NV, out=p_NV[at])
    p_NV[torch.arange(len(token_N), device=token_N.device), token_N] += token_grad_N.to(p_NV.dtype)
    return p_NV
