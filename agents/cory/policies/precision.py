"""Precision of a transformer's matrix products, and casting frozen weights once per response.

Knows no games.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import nn

Precision = Literal["auto", "float32", "bfloat16"]


def check_precision(precision: str) -> None:
    """Raise ValueError for an unknown precision."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision is {precision!r}; there are {', '.join(get_args(Precision))}")


@cache
def resolved(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """`auto` is bfloat16 on a CUDA device that computes in it, float32 everywhere else."""
    on_cuda = device.type == "cuda"
    has_bfloat16 = on_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "auto":
        return "bfloat16" if has_bfloat16 else "float32"
    if precision == "bfloat16" and on_cuda and not has_bfloat16:
        raise ValueError(f"precision is 'bfloat16', which {device} does not compute in; take float32 or auto")
    return precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 if that is the precision; weights stay float32."""
    if resolved(precision, device) == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def cast_linear_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Replace the float32 weights of linear layers by copies in `dtype` inside the block.

    They are the casts that autocast would make at every call. For use without gradient: sampling a response
    casts each weight once instead of once per token. Parameters themselves are not touched, and a weight that
    is tied to an embedding stays float32 there.
    """
    from transformers.pytorch_utils import Conv1D

    replaced: list[tuple[nn.Module, str, nn.Parameter]] = []
    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D):
            for name, parameter in list(module._parameters.items()):
                if parameter is not None and parameter.dtype == torch.float32:
                    replaced.append((module, name, parameter))
    try:
        for module, name, parameter in replaced:
            module._parameters[name] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        yield
    finally:
        for module, name, parameter in replaced:
            module._parameters[name] = parameter
