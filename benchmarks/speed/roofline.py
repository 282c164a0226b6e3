"""The floor: how few floating-point operations an iteration takes, and how fast this machine does them.

    forward unit F = 2 n W + 4 D A layers + 2 k D V

        n tokens that must be read (a response's last one decides nothing), W weights of the trunk's matrices,
        A = sum over rows of L (L + 1) / 2 pairs that attend, k response tokens, V vocabulary

    an iteration = per seat  (1 to sample + 1 for the reference + 3 per epoch) F
        with adapters of w weights on frozen matrices: (1 + 1 + 2 per epoch) F + (1 + 3 per epoch) 2 n w
        less, of the fused_lm_head, 4 D V (2 D V where it is frozen) for a token in each epoch that cannot teach it:
        one whose clip holds has no gradient, and how many these are depends on the weights

`python -m benchmarks.speed.roofline` prints how fast each library multiplies on this machine.

Padding, the pass that values responses before the first epoch, softmax, optimiser: none of them is in the
floor, all of them take time. In it, and left out by us: the last layer's MLP on tokens whose state nobody
asks for.

Shapes: B rows.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from cory.runtime.cpu import Matmul, choose_matmul
from cory.policies.kernels import fused_lm_head
from cory.policies.causal_lm import CausalLMPolicy


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
    as_strided cat clone constant_pad_nd copy_ count_nonzero cumsum detach embedding
    embedding_dense_backward empty empty_like equal expand fill_ full full_like gather index index_add
    index_add_ index_copy_ index_fill index_put index_put_ index_select is_same_size isfinite isin item
    lift_fresh linalg_vecdot linalg_vector_norm masked_fill masked_fill_ max mean min native_layer_norm
    native_layer_norm_backward new_empty new_empty_strided new_ones new_zeros nonzero ones ones_like
    permute prod promote_types rand randint repeat repeat_interleave reshape rms_norm roll scalar_tensor
    scatter scatter_ scatter_add scatter_add_ searchsorted select select_backward set_ slice
    slice_backward softmax sort split split_with_sizes squeeze stack std sum t topk transpose tril triu
    unbind unsafe_split unsqueeze var view where zero_ zeros zeros_like
    """.split()  # noqa: SIM905
)
"""Operators that move, compare or reduce; pointwise ones say so themselves."""


class Counted(TorchDispatchMode):
    """Counts the floating-point operations of everything inside by the table of `FlopCounterMode`, which
    itself cannot look into an `autograd.grad` within a forward pass. Refuses operators it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.largest = 0
        """Elements of the largest tensor that any operator returned."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        packet, given = func.overloadpacket, dict(kwargs or {})
        if not (packet in flop_registry or packet.__name__ in FREE or torch.Tag.pointwise in func.tags):
            raise RuntimeError(
                f"the counter does not know {func}; say in FREE or flop_registry what it costs"
            )
        out = func(*args, **given)
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **given, out_val=out)
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def trunk_weights(policy: CausalLMPolicy) -> tuple[int, int]:
    """Weights of the trunk's matrices, each read once per token: all of them, and those of adapters."""
    sizes = {
        name: module.weight.numel()
        for name, module in policy.model.base_model.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    whole = sum(size for name, size in sizes.items() if ".lora_" not in name)
    mine = sum(size for name, size in sizes.items() if ".lora_" in name and f".{policy.name}" in name)
    return whole, mine


def attending(rows: Rows) -> tuple[int, int, int]:
    """Tokens that must be read, pairs of them that attend, and response tokens."""
    length_B = rows.prompt_length_B + rows.response_length_B - 1
    pairs = length_B * (length_B + 1) // 2
    return int(length_B.sum()), int(pairs.sum()), int(rows.response_length_B.sum())


def floor(policy: CausalLMPolicy, rows: Rows, *, epochs: int, untaught: int = 0) -> int:
    """Floating-point operations that one policy's iteration on `rows` cannot do without; see above.

    `untaught` response tokens, counted once an epoch, have no gradient to give the fused_lm_head.
    """
    tokens, pairs, chosen = attending(rows)
    weights, adapters = trunk_weights(policy)
    config = policy.model.config
    weight_VD = policy.model.get_output_embeddings().weight
    attention = 4 * config.hidden_size * config.num_hidden_layers * pairs
    unit = 2 * tokens * weights + attention + 2 * chosen * weight_VD.numel()
    if adapters:
        whole = (2 + 2 * epochs) * unit + (1 + 3 * epochs) * 2 * tokens * adapters
        return whole - 2 * untaught * weight_VD.numel()
    return (2 + 3 * epochs) * unit - 4 * untaught * weight_VD.numel()


@contextmanager
def counting_untaught() -> Iterator[Counter[str]]:
    """Counts, inside, the tokens that were left out of the gradients of a fused_lm_head: `untaught`."""
    told, plain = Counter[str](), fused_lm_head.first

    def counted(idle_K: Tensor, count: int, *, digits: int) -> Tensor:
        told["untaught"] += len(idle_K) - count
        return plain(idle_K, count, digits=digits)

    fused_lm_head.first = counted
    try:
        yield told
    finally:
        fused_lm_head.first = plain


SHAPES = ((640, 256, 50_257), (2560, 256, 1024), (2048, 768, 3072), (2048, 2048, 2048))
"""Rows, inner and columns of the products that say how fast the machine is."""


def peak(dtype: torch.dtype, device: str = "cpu") -> float:
    """Floating-point operations per second of the fastest product, by the faster of the libraries."""
    return max(max(found) for found in speeds(dtype, device).values())


def speeds(dtype: torch.dtype, device: str = "cpu") -> dict[str, list[float]]:
    """Floating-point operations per second of each of `SHAPES`, by library."""
    libraries: list[Matmul] = ["mkl", "onednn"] if device == "cpu" and dtype == torch.float32 else ["auto"]
    before, found = torch.backends.mkldnn.matmul.fp32_precision, {}
    for library in libraries:
        try:
            choose_matmul(library)
        except ValueError:  # this one rounds here: it is no float32 arithmetic
            continue
        found[library] = [speed(shape, dtype, device) for shape in SHAPES]
    torch.backends.mkldnn.matmul.fp32_precision = before
    return found


def speed(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> float:
    """Floating-point operations per second of one product: the best of twelve, after two; on an accelerator
    of fifty at a time, so that the way there and back is none of it."""
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    left, right = left.to(device, dtype), right.to(device, dtype).t()
    out = torch.empty(rows, columns, dtype=dtype, device=device)
    seconds, times = [], 50 if device.startswith("cuda") else 1
    for _ in range(14):
        settled(device)
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=out)
        settled(device)
        seconds.append((time.perf_counter() - began) / times)
    return 2 * rows * inner * columns / min(seconds[2:])


def settled(device: str) -> None:
    """Wait until the device has done all it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    print("GFLOP/s of rows x inner x columns: " + ", ".join(" x ".join(map(str, shape)) for shape in SHAPES))
    for dtype in (torch.float32, torch.bfloat16):
        for library, found in speeds(dtype).items():
            print(dtype, library, *(f"{one / 1e9:.0f}" for one in found))
