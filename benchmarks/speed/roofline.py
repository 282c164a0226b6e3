"""FLOP lower bound of an iteration, and the fastest matrix product of this machine.

    forward pass F = 2 n W + 4 D A layers + 2 k D V

        n tokens that are read (the last token of a response is not), W weights of the trunk's matrices,
        A = sum over rows of L (L + 1) / 2 pairs of tokens that attend, k response tokens, V vocabulary

    an iteration, per seat: (1 sampling + 1 scoring + 1 scoring by the reference + 3 per epoch) F
        with adapters of w weights on frozen matrices: (3 + 2 per epoch) F + (2 + 3 per epoch) 2 n w

Padding, softmax and optimizer are not part of the lower bound, and all of them take time.

Shapes: B rows.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    flop_registry,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)
from transformers.pytorch_utils import Conv1D

from cory.batch import Rows
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime.cpu import is_exact


@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu)  # not in torch's table
def _cpu_attention(query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward)
def _cpu_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


FREE = frozenset(
    """
    _foreach_add_ _foreach_norm _fused_adam_ _fused_rms_norm _local_scalar_dense _log_softmax
    _log_softmax_backward_data _record_function_enter_new _record_function_exit _softmax
    _softmax_backward_data _to_copy _unsafe_view alias all amax amin aminmax any arange argmax
    as_strided cat clone constant_pad_nd copy_ count_nonzero cumsum detach embedding flip
    embedding_dense_backward empty empty_like equal expand fill_ full full_like gather index index_add
    index_add_ index_copy_ index_fill index_fill_ index_put index_put_ index_select is_same_size
    isfinite isin item lift_fresh linalg_vecdot linalg_vector_norm masked_fill masked_fill_ max mean
    min native_layer_norm
    native_layer_norm_backward new_empty new_empty_strided new_ones new_zeros nonzero ones ones_like
    permute prod promote_types rand randint repeat repeat_interleave reshape rms_norm roll scalar_tensor
    scatter scatter_ scatter_add scatter_add_ searchsorted select select_backward set_ slice
    slice_backward softmax sort split split_with_sizes squeeze stack std sum t topk transpose tril triu
    unbind unsafe_split unsqueeze var view where zero_ zeros zeros_like
    """.split()  # noqa: SIM905
)
"""Operators that move, compare or reduce; pointwise ones carry a tag."""


class FlopCounter(TorchDispatchMode):
    """Count the floating-point operations inside, with the formulas of torch's `FlopCounterMode`.

    That mode cannot look into an `autograd.grad` within a forward pass; this one can. Raises RuntimeError for
    an operator it does not know.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.largest = 0
        """Elements of the largest tensor that any operator returned."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        packet, options = func.overloadpacket, dict(kwargs or {})
        if not (packet in flop_registry or packet.__name__ in FREE or torch.Tag.pointwise in func.tags):
            raise RuntimeError(
                f"the FLOP counter does not know {func}; add it to FREE or register its formula"
            )
        out = func(*args, **options)
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **options, out_val=out)
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def trunk_weights(policy: CausalLMPolicy) -> tuple[int, int]:
    """Weights of the trunk's matrices, each read once per token: those of the model, those of the adapter."""
    sizes = {
        name: module.weight.numel()
        for name, module in policy.model.base_model.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    model = sum(size for name, size in sizes.items() if ".lora_" not in name)
    adapter = sum(size for name, size in sizes.items() if ".lora_" in name and f".{policy.name}" in name)
    return model, adapter


def token_counts(rows: Rows) -> tuple[int, int, int]:
    """Tokens that are read, pairs of them that attend, and response tokens."""
    length_B = rows.prompt_length_B + rows.response_length_B - 1
    pairs = length_B * (length_B + 1) // 2
    return int(length_B.sum()), int(pairs.sum()), int(rows.response_length_B.sum())


def forward_flops(policy: CausalLMPolicy, rows: Rows) -> tuple[int, int]:
    """FLOPs of one forward pass over `rows`: of the model, and of the policy's adapter."""
    tokens, pairs, chosen = token_counts(rows)
    weights, adapter = trunk_weights(policy)
    config = policy.model.config
    attention = 4 * config.hidden_size * config.num_hidden_layers * pairs
    head = 2 * chosen * policy.model.get_output_embeddings().weight.numel()
    return 2 * tokens * weights + attention + head, 2 * tokens * adapter


def sampling_lower_bound(policy: CausalLMPolicy, rows: Rows) -> int:
    """Floating-point operations that sampling `rows` takes at least."""
    return sum(forward_flops(policy, rows))


def lower_bound(policy: CausalLMPolicy, rows: Rows, *, epochs: int) -> int:
    """Floating-point operations that an iteration of one policy on `rows` takes at least; see above."""
    model, adapter = forward_flops(policy, rows)
    if adapter:
        return (3 + 2 * epochs) * model + (2 + 3 * epochs) * adapter
    return (3 + 3 * epochs) * model


SHAPES = ((640, 256, 50_257), (2560, 256, 1024), (2048, 768, 3072), (2048, 2048, 2048))
"""Rows, inner dimension and columns of the products that measure the machine's speed."""


def peak(dtype: torch.dtype, device: str = "cpu") -> float:
    """Floating-point operations per second of the fastest product, by the faster of the libraries."""
    return max(max(found) for found in speeds(dtype, device).values())


def speeds(dtype: torch.dtype, device: str = "cpu") -> dict[str, list[float]]:
    """Floating-point operations per second of each of `SHAPES`, by library."""
    backends: Any = torch.backends
    setting = backends.mkldnn.matmul
    before = setting.fp32_precision
    libraries = {"mkl": "none", "onednn": "bf16"} if device == "cpu" and dtype == torch.float32 else {}
    found: dict[str, list[float]] = {}
    for library, precision in (libraries or {"auto": before}).items():
        setting.fp32_precision = precision
        if library != "onednn" or is_exact():  # it may round float32 to bfloat16 here
            found[library] = [speed(shape, dtype, device) for shape in SHAPES]
    setting.fp32_precision = before
    return found


def speed(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> float:
    """Floating-point operations per second of one product: the best of twelve, after two.

    On an accelerator fifty products are timed together, so that launching them does not count.
    """
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    left, right = left.to(device, dtype), right.to(device, dtype).t()
    out = torch.empty(rows, columns, dtype=dtype, device=device)
    seconds, times = [], 50 if device.startswith("cuda") else 1
    for _ in range(14):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=out)
        synchronize(device)
        seconds.append((time.perf_counter() - start) / times)
    return 2 * rows * inner * columns / min(seconds[2:])


def synchronize(device: str) -> None:
    """Wait for an accelerator to finish its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
