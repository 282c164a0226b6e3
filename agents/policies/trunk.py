"""How a transformer is read: in which precision, and with which activations kept for the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Precision = Literal["auto", "float32", "bfloat16"]
ACTIVATIONS = {"cuda": 1 << 27, "cpu": 14 << 20}
"""Tokens x width x layers of one pass. Of each, autograd keeps some 18 numbers and a pass peaks at some 34:
2.0 GB of float32 on a CPU, which other devices are taken to be no larger than."""


LONG = 256
"""Tokens of a row from which SDPA takes less time than batched products on a CPU, and memory."""


def check_precision(precision: str) -> None:
    """Refuse a precision that nobody knows."""
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
    """Matrix products in bfloat16 where that is the precision; the weights stay as they are, float32."""
    if resolved(precision, device) == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def attending(model: Any, length: int) -> Iterator[None]:
    """Inside, rows of so many tokens are attended to in the faster way: a model that takes batched products
    takes SDPA for long ones, if it can."""
    plain = model.config._attn_implementation
    if plain != "eager" or length < LONG or not model._supports_sdpa:
        yield
        return
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(plain)


@contextmanager
def remembered_casts(model: nn.Module) -> Iterator[None]:
    """Inside, autocast casts a weight once, and not at every token: it remembers casts of leaves that want a
    gradient alone, so frozen ones are said to. For the inside of `no_grad`."""
    frozen = [p for p in model.parameters() if not p.requires_grad and p.dtype == torch.float32]
    for p in frozen:
        p.requires_grad_(True)
    try:
        yield
    finally:
        for p in frozen:
            p.requires_grad_(False)


def recomputable_layers(model: Any) -> list[Any]:
    """The blocks transformers can recompute in the backward pass; refused where it would lie."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that transformers can recompute; set "
            "gradient_checkpointing to false"
        )
    for layer in layers:
        for name, rate in vars(layer).items():
            if "dropout" in name and isinstance(rate, float) and rate > 0:
                raise ValueError(
                    f"{type(layer).__name__}.{name} is {rate}, and recomputing would switch this dropout on; "
                    "set it to 0 in the model's config.json or gradient_checkpointing to false"
                )
    return layers


@contextmanager
def recomputing(model: Any, reading: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Inside, every layer keeps its inputs alone and is run again, inside `reading()`, when gradients flow.

    transformers recomputes a layer whose own `training` is set; its dropout modules keep theirs, so dropout
    stays off, and a decoder, which runs outside of this, keeps its cache.
    """
    layers = recomputable_layers(model)
    rerun = partial(
        checkpoint,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), reading()),
    )
    for layer in layers:
        layer._gradient_checkpointing_func = rerun
        layer.training = layer.gradient_checkpointing = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = layer.gradient_checkpointing = False
            del layer._gradient_checkpointing_func
