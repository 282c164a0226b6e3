"""The language-model head, as oneDNN multiplies it best.

Its logits are a product of rows to a round number: those of 559 rows take 55 ms and those of 560 take 38
(2 cores, 256 x 50,257).

Its two gradients are taken together, run by run of the vocabulary. Each is a product with the gradient of the
logits, which is larger than any cache. A run of its columns is still there when the second product wants it,
and the gradient of the weights is float32 at once, whatever the precision of the products.

Shapes: K tokens, D width, V vocabulary, R of a run.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from agents.policies.chunks import ROUND

RUN = 1 << 10
SMOOTH = 256
"""Up to so many rows any number is as good as the next."""


def read(head: nn.Module, state_KD: Tensor) -> Tensor:
    """`head(state_KD)` [K, V].

    Heads that are more than one matrix, and devices other than the CPU, are left to autograd.
    """
    plain = type(head) is nn.Linear and head.bias is None and head.weight.device.type == "cpu"
    if not plain:
        return head(state_KD)  # type: ignore[no-any-return]
    if not torch.is_grad_enabled():
        return head(rounded(state_KD))[: len(state_KD)]  # type: ignore[no-any-return]
    return _Head.apply(state_KD, head.weight)  # type: ignore[no-any-return]


def rounded(state_KD: Tensor) -> Tensor:
    """With rows of zeros behind them, to a number of rows that is multiplied fast."""
    missing = -len(state_KD) % ROUND if len(state_KD) > SMOOTH else 0
    return pad(state_KD, (0, 0, 0, missing)) if missing else state_KD


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state_KD: Tensor, weight_VD: Tensor) -> Tensor:  # type: ignore[override]
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else state_KD.dtype
        factor_KD, factor_VD = state_KD.to(dtype), weight_VD.to(dtype)
        ctx.save_for_backward(state_KD, weight_VD, factor_KD, factor_VD)
        return (rounded(factor_KD) @ factor_VD.t())[: len(factor_KD)]

    @staticmethod
    def backward(ctx: Any, grad_KV: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        state_KD, weight_VD, factor_KD, factor_VD = ctx.saved_tensors
        learns = ctx.needs_input_grad[1]
        if torch.is_grad_enabled():  # these gradients are to be differentiated
            grad_KV = grad_KV.to(state_KD.dtype)
            return grad_KV @ weight_VD, grad_KV.t() @ state_KD if learns else None
        of_state_KD = torch.zeros_like(state_KD)
        of_weight_VD = torch.empty_like(weight_VD) if learns else None
        for start in range(0, len(weight_VD), RUN):
            at = slice(start, start + RUN)
            grad_KR = grad_KV[:, at]
            of_state_KD += grad_KR @ factor_VD[at]
            if of_weight_VD is not None:
                of_weight_VD[at] = grad_KR.t() @ factor_KD
        return of_state_KD, of_weight_VD
