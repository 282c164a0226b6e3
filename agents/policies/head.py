"""The language-model head, as oneDNN multiplies it best, and what a loss asks of the softmax behind it.

Its logits are a product of rows to a round number: those of 559 rows take 55 ms and those of 560 take 38
(2 cores, 256 x 50,257).

Its two gradients are products with the gradient of the logits, which is larger than any cache. So they are
taken together, run by run of the vocabulary: a run of columns is still there when the second product wants
it, and the gradient of the weights is float32 at once, whatever the precision of the products. And they are
taken of the tokens that have a gradient alone. Where a clipped ratio holds, or the advantage is 0, a token
teaches the head nothing, exactly.

Shapes: K tokens, A of them with a gradient, D width, V vocabulary, R of a run.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from agents import softmax
from agents.policies.chunks import ROUND
from agents.policies.narrow import first

RUN = 1 << 10
SMOOTH = 256
"""Up to so many rows any number is as good as the next."""
DIGITS = 4
"""How round the number of tokens is that have one, in binary: kernels are made for a few shapes."""


def plain(head: nn.Module) -> bool:
    """Whether it is one matrix on a CPU. Others are left to autograd."""
    return type(head) is nn.Linear and head.bias is None and head.weight.device.type == "cpu"


def read(head: nn.Module, state_KD: Tensor) -> Tensor:
    """`head(state_KD)` [K, V]."""
    if not plain(head):
        return head(state_KD)  # type: ignore[no-any-return]
    return head(rounded(state_KD))[: len(state_KD)]  # type: ignore[no-any-return]


def rounded(state_KD: Tensor) -> Tensor:
    """With rows of zeros behind them, to a number of rows that is multiplied fast."""
    missing = -len(state_KD) % ROUND if len(state_KD) > SMOOTH else 0
    return pad(state_KD, (0, 0, 0, missing)) if missing else state_KD


def statistics(
    head: nn.Linear,
    state_KD: Tensor,
    token_K: Tensor,
    ref_logits_KV: Tensor | None = None,
    *,
    of_kl: bool = True,
    vocab_size: int,
    temperature: float = 1.0,
) -> softmax.Statistics:
    """`softmax.statistics` of a plain head's first `vocab_size` logits; gradients once only."""
    return softmax.Statistics(
        *_Statistics.apply(state_KD, head.weight, token_K, ref_logits_KV, of_kl, vocab_size, temperature)
    )


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        state_KD: Tensor,
        weight_VD: Tensor,
        token_K: Tensor,
        ref_logits_KV: Tensor | None,
        of_kl: bool,
        vocab_size: int,
        temperature: float,
    ) -> tuple[Tensor, ...]:
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else state_KD.dtype
        factor_KD, factor_VD = state_KD.to(dtype), weight_VD[:vocab_size].to(dtype)
        logits_KV = (rounded(factor_KD) @ factor_VD.t())[: len(factor_KD)]
        if temperature != 1.0:
            logits_KV /= temperature
        told = softmax.taken(logits_KV, token_K, ref_logits_KV, spend=True)
        ctx.p_KV, ctx.temperature = logits_KV, temperature
        more = state_KD, weight_VD, factor_KD, factor_VD
        softmax.remember(ctx, told, token_K, ref_logits_KV, *more, of_kl=of_kl)
        return tuple(told)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *of_told: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        token_K, *told, state_KD, weight_VD, factor_KD, factor_VD = ctx.saved_tensors
        p_KV, ctx.p_KV = ctx.p_KV, None
        of_logprob_K, *others, _ = of_told
        one_hot = all(more is None for more in others)
        if one_hot:  # of a log-prob alone: rows of probabilities, each times a number
            slope_K = told[0].new_zeros(len(state_KD)) if of_logprob_K is None else -of_logprob_K
        else:
            p_KV, slope_K = softmax.gradient(p_KV, token_K, *told, of_told), told[0].new_ones(len(state_KD))
        slope_K = slope_K / ctx.temperature
        at_A = first(slope_K == 0, int(slope_K.count_nonzero()), digits=DIGITS).sort().values
        slope_A1, token_A = slope_K[at_A, None], token_K[at_A]
        factor_AD = (factor_KD[at_A] * slope_A1).to(factor_KD.dtype)
        of_state_AD = state_KD.new_zeros(len(at_A), state_KD.shape[1])
        of_weight_VD = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        for start in range(0, len(factor_VD), RUN):
            run = slice(start, min(start + RUN, len(factor_VD)))
            p_AR = p_KV[:, run].index_select(0, at_A) if len(at_A) < len(p_KV) else p_KV[:, run]
            of_state_AD += p_AR @ factor_VD[run]
            if of_weight_VD is not None:
                of_weight_VD[run] = p_AR.t() @ factor_AD
        of_state_AD *= slope_A1
        if one_hot:
            of_state_AD -= slope_A1 * weight_VD[token_A]
        if of_weight_VD is not None:
            of_weight_VD[len(factor_VD) :] = 0  # ids behind the vocabulary
            if one_hot:
                of_weight_VD.index_add_(0, token_A, slope_A1 * state_KD[at_A], alpha=-1)
        of_state_KD = torch.zeros_like(state_KD).index_copy_(0, at_A, of_state_AD)
        return of_state_KD, of_weight_VD, None, None, None, None, None
