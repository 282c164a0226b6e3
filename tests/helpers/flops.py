"""Floating-point operations of an iteration, counted."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    flop_registry,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)


@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu)  # not in torch's table
def _cpu_attention(query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward)
def _cpu_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


class FlopCounter(TorchDispatchMode):
    """Count the floating-point operations inside, with the formulas of torch's `FlopCounterMode`.

    That mode cannot look into an `autograd.grad` within a forward pass; this one can.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.largest = 0
        """Elements of the largest tensor that any operator returned."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        packet, options = func.overloadpacket, dict(kwargs or {})
        out = func(*args, **options)
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **options, out_val=out)
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out
