"""Language-model head and softmax statistics in one autograd function, for the CPU.

Logits are computed for a padded number of rows (row-padding for oneDNN GEMMs: 559 rows take 55 ms and 560
take 38 at 256 x 50,257 on 2 cores). The two gradient products share one pass over the vocabulary in runs of
columns, while a run is still in the cache, and the weight gradient is float32 whatever the precision of the
products.

Shapes: K tokens, D width, V vocabulary, R columns of a run.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from cory.functional import logit_statistics
from cory.functional.logit_statistics import LogitStatistics
from cory.policies.chunked_loss import ROUND

RUN = 1 << 10
"""Vocabulary columns per run."""
SMALL = 256
"""Below this row count padding does not help."""


def applies(head: nn.Module) -> bool:
    """Whether the head is one bias-free matrix on a CPU; others go through autograd."""
    return type(head) is nn.Linear and head.bias is None and head.weight.device.type == "cpu"


def apply_head(head: nn.Module, state_KD: Tensor) -> Tensor:
    """`head(state_KD)` [K, V], computed for a padded number of rows."""
    logits_KV: Tensor = head(pad_rows(state_KD))
    return logits_KV[: len(state_KD)]


def pad_rows(state_KD: Tensor) -> Tensor:
    """Rows of zeros appended up to a row count that multiplies fast."""
    missing = -len(state_KD) % ROUND if len(state_KD) > SMALL else 0
    return pad(state_KD, (0, 0, 0, missing)) if missing else state_KD


def head_statistics(
    head: nn.Linear,
    state_KD: Tensor,
    token_K: Tensor,
    ref_logits_KV: Tensor | None = None,
    *,
    kl_gradient: bool = True,
    vocab_size: int,
    temperature: float = 1.0,
) -> LogitStatistics:
    """`logit_statistics` of the head's first `vocab_size` logits; gradients flow once."""
    found = _HeadStatistics.apply(  # type: ignore[no-untyped-call]
        state_KD, head.weight, token_K, ref_logits_KV, kl_gradient, vocab_size, temperature
    )
    return LogitStatistics(*found)


class _HeadStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state_KD: Tensor,
        weight_VD: Tensor,
        token_K: Tensor,
        ref_logits_KV: Tensor | None,
        kl_gradient: bool,
        vocab_size: int,
        temperature: float,
    ) -> tuple[Tensor, ...]:
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else state_KD.dtype
        factor_KD, factor_VD = state_KD.to(dtype), weight_VD[:vocab_size].to(dtype)
        logits_KV = (pad_rows(factor_KD) @ factor_VD.t())[: len(factor_KD)]
        if temperature != 1.0:
            logits_KV /= temperature
        found = logit_statistics.compute(logits_KV, token_K, ref_logits_KV, overwrite=True)
        ctx.p_KV, ctx.temperature = logits_KV, temperature
        more = state_KD, weight_VD, factor_KD, factor_VD
        logit_statistics.save_for_gradient(ctx, found, token_K, ref_logits_KV, *more, kl_gradient=kl_gradient)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        token_K, entropy_K, kl_K, ref_logits_KV, *factors = ctx.saved_tensors
        state_KD, weight_VD, factor_KD, factor_VD = factors
        p_KV, ctx.p_KV = ctx.p_KV, None
        logprob_grad_K, *other_grads, _ = grads
        logprob_only = all(grad is None for grad in other_grads)
        if logprob_only:  # the logits' gradient is then g (1[token] - p): scale rows, leave p as it is
            slope_K = entropy_K.new_zeros(len(state_KD)) if logprob_grad_K is None else -logprob_grad_K
        else:
            p_KV = logit_statistics.gradient(p_KV, token_K, entropy_K, kl_K, ref_logits_KV, grads)
            slope_K = entropy_K.new_ones(len(state_KD))
        slope_K1 = (slope_K / ctx.temperature)[:, None]
        scaled_KD = (factor_KD * slope_K1).to(factor_KD.dtype)
        state_grad_KD = torch.zeros_like(state_KD)
        weight_grad_VD = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        for start in range(0, len(factor_VD), RUN):
            run = slice(start, min(start + RUN, len(factor_VD)))
            state_grad_KD += p_KV[:, run] @ factor_VD[run]
            if weight_grad_VD is not None:
                weight_grad_VD[run] = p_KV[:, run].t() @ scaled_KD
        state_grad_KD *= slope_K1
        if logprob_only:
            state_grad_KD -= slope_K1 * weight_VD[token_K]
        if weight_grad_VD is not None:
            weight_grad_VD[len(factor_VD) :] = 0  # ids beyond the vocabulary
            if logprob_only:
                weight_grad_VD.index_add_(0, token_K, slope_K1 * state_KD, alpha=-1)
        return state_grad_KD, weight_grad_VD, None, None, None, None, None
