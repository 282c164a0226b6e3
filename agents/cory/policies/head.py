"""The head of a model, and what the model does to its logits: a scale, a soft cap, or nothing.

Granite divides its logits, Cohere multiplies them, Gemma 2 caps them, MiniCPM scales the states that enter
its head. Configurations name these numbers differently, so they are measured: in one pass of the whole model
the head is made to return known logits, and what comes out of the model is the transform of them.

Shapes: K tokens, L tokens of a row, D width, V vocabulary.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

SMALLEST, LARGEST = 2.0**-14, 2.0**20
"""Known logits at which a soft cap changes nothing, and at which nothing but the cap is left."""


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


class _Pass:
    """What one pass of the model shows of its head."""

    module: str | None = None
    factor: float = 1.0
    """What the last hidden states are multiplied by before they enter the module."""
    given_LV: Tensor | None = None
    """The logits that the module was made to return."""


@torch.no_grad()
def measure(model: Any, ids_1L: Tensor) -> Head:
    """The module and the transform that lead from last hidden states to `model(ids).logits`.

    Raises ValueError if there is no such module, or if its logits are changed otherwise than by a scale and a
    soft cap.
    """
    if model.base_model is model:
        raise ValueError("its transformer without the head is no module of its own")
    states_1LD = model.base_model(input_ids=ids_1L, use_cache=False).last_hidden_state
    with _known_logits(model, states_1LD) as seen:
        out_LV = model(input_ids=ids_1L, use_cache=False).logits[0].cpu().double()
    if seen.module is None or seen.given_LV is None:
        raise ValueError("no module of it turns the last hidden states of its trunk into logits")
    if seen.given_LV.shape != out_LV.shape:
        raise ValueError("several modules, one after the other, turn the last hidden states into logits")
    if seen.factor != 1.0 and getattr(model.get_submodule(seen.module), "bias", None) is not None:
        raise ValueError("it scales the states that enter a head with a bias")
    given_LV = seen.given_LV.cpu().double()
    scale, largest = _rounded(float(out_LV[0, -1] / given_LV[0, -1])), float(out_LV[-1, -1])
    transform = LogitTransform(scale, math.inf if largest > 0.5 * abs(scale) * LARGEST else largest)
    if not (scale > 0 and torch.allclose(out_LV, transform(given_LV), rtol=1e-4, atol=SMALLEST * 1e-3)):
        raise ValueError("it changes its logits in a way that is neither a scale nor a soft cap")
    return Head(seen.module, transform._replace(scale=_rounded(scale * seen.factor)))


@contextmanager
def _known_logits(model: Any, states_1LD: Tensor) -> Iterator[_Pass]:
    """Inside, the head returns logits from -`LARGEST` to `LARGEST`, larger at every token of the row."""
    seen = _Pass()

    def enter(name: str, args: tuple[Any, ...]) -> None:
        if seen.module is not None or not args:
            return
        factor = _multiple(args[0], states_1LD)
        if factor is not None:
            seen.module, seen.factor = name, factor

    def leave(name: str, out: Any) -> Tensor | None:
        if name != seen.module or not isinstance(out, Tensor):
            return None
        L, V = out.shape[-2:]
        size_L = torch.logspace(math.log2(SMALLEST), math.log2(LARGEST), L, base=2.0, device=out.device)
        seen.given_LV = size_L[:, None] * torch.linspace(-1, 1, V, device=out.device)
        return seen.given_LV.expand(out.shape)

    inside, handles = set(model.base_model.modules()), []
    for name, module in model.named_modules():
        if module not in inside and module is not model:
            handles += [
                module.register_forward_pre_hook(lambda _, args, name=name: enter(name, args)),
                module.register_forward_hook(lambda _, __, out, name=name: leave(name, out)),
            ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


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
