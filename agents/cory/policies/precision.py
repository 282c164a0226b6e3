"""Precision of a transformer's matrix products and frozen weights; casting weights once per response.

Knows no games.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import nn

from cory.runtime.cpu import widen_bfloat16
from cory.runtime.device import computes_bfloat16, import_bitsandbytes

Precision = Literal["auto", "float32", "bfloat16"]


def check_precision(precision: str) -> None:
    """Raise ValueError for an unknown precision."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision is {precision!r}; there are {', '.join(get_args(Precision))}")


@cache
def resolved(precision: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """`auto` is bfloat16 on an accelerator that computes in it, float32 everywhere else.

    For bfloat16 on a CPU this process is prepared by `widen_bfloat16`.
    """
    if precision == "auto":
        return "bfloat16" if computes_bfloat16(device) else "float32"
    if precision == "bfloat16" and computes_bfloat16(device) is False:
        raise ValueError(f"precision is 'bfloat16', which {device} does not compute in; take float32 or auto")
    if precision == "bfloat16" and device.type == "cpu":
        widen_bfloat16()
    return precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 if that is the precision; weights stay float32."""
    if resolved(precision, device) == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def product_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The type of matrix products, in which the linear layers of frozen models are stored."""
    return getattr(torch, resolved(precision, device))  # type: ignore[no-any-return]


def four_bit_options(precision: Precision, device: torch.device) -> dict[str, Any]:
    """Return the options of `from_pretrained` for NF4 weights, on any device that bitsandbytes serves.

    Products are computed in `precision`: in bfloat16 within a pass of float32, sampler and learner would
    differ by more than float32 rounds.
    """
    library = import_bitsandbytes("lora.four_bit")
    if device.type not in library.supported_torch_devices:
        raise ValueError(
            f"lora.four_bit: bitsandbytes {library.__version__} does not run on {device}; say no, or take "
            "another device"
        )
    from transformers import BitsAndBytesConfig

    quantised = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=product_dtype(precision, device),
    )
    return {"quantization_config": quantised}


def freeze_format(model: nn.Module) -> None:
    """Keep bitsandbytes from changing 4-bit layers at their first pass.

    On processors with AVX512-BF16 it packs the weights for products in bfloat16 that have no gradient, and
    everywhere it casts a bias to the type of the products.
    """
    layer = import_bitsandbytes("lora.four_bit").nn.Linear4bit
    for module in model.modules():
        if isinstance(module, layer):
            module.support_avx512bf16_for_cpu = False
            if module.bias is not None:
                module.bias.data = module.bias.data.to(module.compute_dtype)


def linear_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """The parameters of linear layers, except in 4 bits: layer, name, parameter."""
    from transformers.pytorch_utils import Conv1D

    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D):
            for name, parameter in list(module._parameters.items()):
                if parameter is not None and parameter.is_floating_point():
                    yield module, name, parameter


def castable(model: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """The parameters that autocast copies in bfloat16, as `linear_parameters`."""
    return [entry for entry in linear_parameters(model) if entry[2].dtype == torch.float32]


def storable(model: nn.Module) -> list[nn.Parameter]:
    """Those of `linear_parameters` that no other module has, such as an embedding."""
    uses = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    return [parameter for _, _, parameter in linear_parameters(model) if uses[id(parameter)] == 1]


def store_frozen(model: nn.Module, dtype: torch.dtype) -> None:
    """Store a frozen model in float32, or its linear layers in bfloat16; those in 4 bits stay so.

    The layers are then what autocast would make of them at every pass: results are the same, and no copies
    are held. Embeddings, norms and weights that are tied to an embedding are float32. Parameters of another
    type are replaced.
    """
    if dtype == torch.float32:
        if not getattr(model, "is_quantized", False):
            model.float()
        return
    linear = {id(parameter) for parameter in storable(model)}
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                want = dtype if id(parameter) in linear else torch.float32
                if parameter.dtype != want and id(parameter) not in made:
                    tensor = parameter.detach().to(want)
                    made[id(parameter)] = nn.Parameter(tensor, requires_grad=parameter.requires_grad)
                module._parameters[name] = made.get(id(parameter), parameter)


@torch.no_grad()
def dither_bfloat16(model: nn.Module) -> None:
    """Move the linear weights of a bfloat16 checkpoint within what bfloat16 rounds to them, in place.

    Products round each weight to bfloat16. From exactly such a number every update of less than half a step
    is rounded away: the policy that plays lags behind the weights that are trained and exported. From a
    uniformly drawn place between two roundings (non-subtractive dither) the rounded update is the update in
    expectation, and before the first one each product is the checkpoint's still. Equal draws for equal
    models; tensors of another type, and weights that are tied to an embedding, stay as they are.
    """
    for number, weight in enumerate(storable(model)):
        bits = weight.detach().view(torch.int32)  # bfloat16 has the upper 16
        if (bits & 0xFFFF).any():
            continue
        draws = torch.Generator(weight.device).manual_seed(number)
        moves = torch.randint(
            -0x7FFF, 0x8000, bits.shape, generator=draws, device=weight.device, dtype=torch.int32
        )
        bits += moves.masked_fill_(weight == 0, 0)


@contextmanager
def cast_linear_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Replace the float32 weights of linear layers by copies in `dtype` inside the block.

    They are the casts that autocast would make at every call. For use without gradient: sampling a response
    casts each weight once instead of once per token. Parameters themselves are not touched, and a weight that
    is tied to an embedding stays float32 there.
    """
    replaced = castable(model)
    try:
        for module, name, parameter in replaced:
            module._parameters[name] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        yield
    finally:
        for module, name, parameter in replaced:
            module._parameters[name] = parameter
