"""Gradient checkpointing: recompute transformer layers in the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Self

from torch.utils.checkpoint import checkpoint


def layers_of(model: Any) -> list[Any]:
    """The transformer's layers, as far as transformers marks them, without those inside of others."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    inner = {part for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if layer not in inner]


def recomputable_layers(model: Any) -> list[Any]:
    """The layers transformers can recompute; ValueError if there are none or recomputing enables dropout."""
    layers = layers_of(model)
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


class _Anew(ExitStack):
    """A context that is made at each entry: a second derivative runs a layer again more than once."""

    def __init__(self, context: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._context = context

    def __enter__(self) -> Self:
        self.enter_context(self._context())
        return self


@contextmanager
def recomputing(model: Any, context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Inside, every layer keeps only its inputs and runs again, within `context()`, in the backward pass.

    transformers recomputes a layer whose own `training` flag is set; its dropout modules keep theirs, so
    dropout stays off, and a decoder, which runs outside of this block, keeps its cache.
    """
    layers = recomputable_layers(model)
    rerun = partial(
        checkpoint,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), _Anew(context)),
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
