"""The head of a model, and what the model does to its logits: a scale, a soft cap, or nothing.

Granite divides its logits, Cohere multiplies them, Gemma 2 caps them, MiniCPM scales the states that enter
its head. Configurations name these numbers differently, so they are measured: in one pass of the whole model
the head is made to return known logits, and what comes out of the model is the transform of them.

Shapes: K tokens, L tokens of a row, D width, V vocabulary.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SMALLEST, LARGEST = 2.0**-14, 2.0**20
"""Known logits at which a soft cap changes nothing, and at which nothing but the cap is left."""
NO_HEAD = "no module of it turns the last hidden states of its trunk into logits"


class LogitTransform(NamedTuple):
    """cap * tanh(scale * z / cap) of the head's logits z; without a cap scale * z."""

    scale: float = 1.0
    cap: float = math.inf

    def __call__(self, logits_KV: Tensor) -> Tensor:
        """Transformed logits: the same tensor where the transform is the identity."""
        scaled_KV = logits_KV if self.scale == 1.0 else logits_KV * self.scale
        return scaled_KV if self.cap == math.inf else torch.tanh(scaled_KV / self.cap) * self.cap


class Head(NamedTuple):
    """From last hidden states to logits, as the model does it."""

    module: str
    """Name of the module that reads the last hidden states and returns the head's logits."""
    transform: LogitTransform


@torch.no_grad()
def measure(model: Any, ids_1L: Tensor) -> Head:
    """The module and the transform that lead from last hidden states to `model(ids).logits`.

    Raises ValueError if there is no such module, or if its logits are changed otherwise than by a scale and a
    soft cap.
    """
    if model.base_model is model:
        raise ValueError("its transformer without the head is no module of its own")
    module = _module_of_head(model)
    states_1LD = model.base_model(input_ids=ids_1L, use_cache=False).last_hidden_state
    passes: list[tuple[Tensor, Tensor]] = []

    def known_logits(_: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        """Logits from -`LARGEST` to `LARGEST`, larger at every token of the row, for those of the head."""
        if not args or not isinstance(out, Tensor):
            return None
        L, V = out.shape[-2:]
        size_L = torch.logspace(math.log2(SMALLEST), math.log2(LARGEST), L, base=2.0, device=out.device)
        given_LV = size_L[:, None] * torch.linspace(-1, 1, V, device=out.device)
        passes.append((args[0], given_LV.cpu().double()))
        return given_LV.expand(out.shape)

    hook = model.get_submodule(module).register_forward_hook(known_logits)
    try:
        out_LV = model(input_ids=ids_1L, use_cache=False).logits[0].cpu().double()
    finally:
        hook.remove()
    if not passes or (factor := _multiple(passes[0][0], states_1LD)) is None:
        raise ValueError(NO_HEAD)
    given_LV = passes[0][1]
    if factor != 1.0 and getattr(model.get_submodule(module), "bias", None) is not None:
        raise ValueError("it scales the states that enter a head with a bias")
    scale, largest = _rounded(float(out_LV[0, -1] / given_LV[0, -1])), float(out_LV[-1, -1])
    transform = LogitTransform(scale, math.inf if largest > 0.5 * abs(scale) * LARGEST else largest)
    alike = out_LV.shape == given_LV.shape and scale > 0
    if not (alike and torch.allclose(out_LV, transform(given_LV), rtol=1e-4, atol=SMALLEST * 1e-3)):
        raise ValueError("it changes its logits in a way that is neither a scale nor a soft cap")
    return Head(module, transform._replace(scale=_rounded(scale * factor)))


def _module_of_head(model: Any) -> str:
    """The part of a model beside its trunk that holds the output embeddings."""
    embeddings = model.get_output_embeddings()
    for name, part in model.named_children():
        if part is not model.base_model and any(module is embeddings for module in part.modules()):
            return str(name)
    raise ValueError(NO_HEAD)


def _multiple(inputs: Any, states_1LD: Tensor) -> float | None:
    """The number that makes `inputs` of the last hidden states; None if there is none."""
    if not isinstance(inputs, Tensor) or inputs.shape != states_1LD.shape:
        return None
    inputs, states = inputs.cpu().double(), states_1LD.cpu().double()
    factor = _rounded(float((inputs * states).sum() / (states * states).sum()))
    near = torch.allclose(inputs, factor * states, rtol=1e-3, atol=1e-3 * float(states.abs().mean()))
    return factor if near else None


def _rounded(number: float) -> float:
    """The number without the rounding of float32, if it is 1."""
    return 1.0 if abs(number - 1) < 1e-6 else number
