"""What a transformer works out token by token, it works out for tokens somebody wants alone.

Padding is left out of every projection and MLP, and of the last layer's MLP every token whose state is not
asked for: what these would become nobody reads. Attention sees rows as before. The classes of transformers
stay as they are; hooks pick the tokens before a module and put them back, zeros between them, behind it.

Shapes: B rows, L tokens of the longest, N tokens that are wanted, D width.
"""

from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


class TokenWise(NamedTuple):
    """Modules of a transformer that read each token by itself."""

    inner: list[nn.Module]
    last: list[nn.Module]
    """Those whose results, of all tokens, no token looks at but the one they are of."""


UNSEEN = ("q_proj", "o_proj", "c_proj", "out_proj", "dense")
"""What projections of the last attention are called that are of this kind: keys and values are not."""


def token_wise(model: Any) -> TokenWise:
    """The MLP of every layer and the projections beside it; none where a layer has no MLP by that name."""
    layers = [
        model.base_model.get_submodule(name.removesuffix(".mlp"))
        for name, module in model.base_model.named_modules()
        if name.endswith(".mlp") and type(module).__name__.endswith("MLP")
    ]
    if len(layers) != model.config.get_text_config().num_hidden_layers:
        return TokenWise([], [])
    last = [layers[-1].mlp, *projections(layers[-1], called=UNSEEN)]
    parts = [part for layer in layers for part in [layer.mlp, *projections(layer)]]
    return TokenWise([part for part in parts if not any(part is other for other in last)], last)


def projections(module: nn.Module, *, called: Container[str] | None = None) -> Iterator[nn.Module]:
    """The linear maps of a layer beside its MLP, with the adapters that are on them; all of them, or those
    with such a name."""
    for name, part in module.named_children():
        if name == "mlp":
            continue
        if not isinstance(getattr(part, "base_layer", part), nn.Linear | Conv1D):
            yield from projections(part, called=called)
        elif called is None or name in called:
            yield part


@dataclass(frozen=True)
class Wanted:
    """Which tokens of [B, L], flattened, matter."""

    read_N: Tensor
    """Those that somebody looks at, and up to a sixteenth more."""
    asked_N: Tensor
    """Those whose state behind the last layer is asked for."""
    last_N: Tensor
    """The same in order, and up to a sixteenth more."""
    shape: torch.Size

    @classmethod
    def of(cls, read_BL: Tensor, asked_N: Tensor) -> "Wanted":
        """From a mask of the tokens that are no padding.

        More are read than must be, to a round number: a batch of like length then finds kernels for its
        shapes, fast ones, and freed memory of its sizes.
        """
        idle_X = torch.ones_like(read_BL).flatten().index_fill(0, asked_N, False)
        return cls(
            first(read_BL.flatten().logical_not(), int(read_BL.sum())),
            asked_N,
            first(idle_X, len(asked_N)),
            read_BL.shape,
        )


def first(idle_X: Tensor, count: int, *, digits: int = 5) -> Tensor:
    """Where it is False, `count` times, and then where it is True, to a round number."""
    return idle_X.argsort(stable=True)[: rounded(count, digits)]


def rounded(count: int, digits: int) -> int:
    """The next number of which all but the first so many binary digits are 0."""
    step = 1 << max(0, count.bit_length() - digits)
    return -(-count // step) * step


@contextmanager
def narrowed(modules: TokenWise, wanted: Wanted) -> Iterator[None]:
    """Inside, modules read the tokens that are wanted alone."""
    padded = len(wanted.read_N) < wanted.shape.numel()
    with ExitStack() as around:
        for module in modules.inner if padded else []:
            around.enter_context(reading_only(module, wanted.read_N, wanted.shape))
        for module in modules.last:
            around.enter_context(reading_only(module, wanted.last_N, wanted.shape))
        yield


@contextmanager
def reading_only(module: nn.Module, at_N: Tensor, shape: torch.Size) -> Iterator[None]:
    """Inside, a module that maps [B, L, D] token by token does so at `at_N`; zeros stand for the others.

    What comes in another shape it reads as it is.
    """
    picked = torch.Size((1, len(at_N)))

    def pick(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given or given[0].shape[:-1] != shape:
            return None
        return given[0].flatten(0, 1).index_select(0, at_N)[None], *given[1:]

    def put(_: nn.Module, given: tuple[Any, ...], out: Tensor) -> Tensor | None:
        if not given or given[0].shape[:-1] != picked:
            return None
        flat_XD = out.new_zeros(shape.numel(), out.shape[-1])
        return flat_XD.index_copy_(0, at_N, out.squeeze(0)).view(*shape, -1)

    handles = module.register_forward_pre_hook(pick), module.register_forward_hook(put)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
