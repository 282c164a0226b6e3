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
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from cory.batch import Rows
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime.cpu import is_exact
from cory.runtime.device import synchronize


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


def forward_flops(policy: CausalLMPolicy, rows: Rows) -> tuple[int, int]:
    """FLOPs of one forward pass over `rows`: of the model, and of the policy's adapter."""
    length_B = rows.prompt_length_B + rows.response_length_B - 1
    tokens, pairs = int(length_B.sum()), int((length_B * (length_B + 1) // 2).sum())
    weights, adapter = trunk_weights(policy)
    config = policy.model.config
    attention = 4 * config.hidden_size * config.num_hidden_layers * pairs
    head = 2 * int(rows.response_length_B.sum()) * policy.model.get_output_embeddings().weight.numel()
    return 2 * tokens * weights + attention + head, 2 * tokens * adapter


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
    backends: Any = torch.backends
    setting = backends.mkldnn.matmul
    before = setting.fp32_precision
    choice = device == "cpu" and dtype == torch.float32
    fastest = 0.0
    for setting.fp32_precision in ("none", "bf16") if choice else (before,):  # MKL, oneDNN
        if not choice or is_exact():  # oneDNN may round float32 to bfloat16 here
            fastest = max(fastest, *(speed(shape, dtype, device) for shape in SHAPES))
    setting.fp32_precision = before
    return fastest


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
        synchronize(torch.device(device))
        start = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=out)
        synchronize(torch.device(device))
        seconds.append((time.perf_counter() - start) / times)
    return 2 * rows * inner * columns / min(seconds[2:])
