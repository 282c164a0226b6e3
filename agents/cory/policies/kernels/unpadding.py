"""Run per-token modules (MLPs, projections) on non-padding tokens only (unpadding).

The last layer's MLP, and the projections of its attention that only the query position uses, run only on
tokens whose hidden state is needed. Attention itself sees padded rows as before. Hooks are installed once;
outside of `Unpadding.using` they pass everything through.

Shapes: B rows, L tokens of the longest, N tokens that are computed, K chosen tokens, D width.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

QUERY_ONLY = ("q_proj", "o_proj", "c_proj", "out_proj", "dense")
"""Names of last-layer projections whose outputs only the query position uses (not k, v)."""


class TokenWise(NamedTuple):
    """Modules of a transformer that process each token by itself."""

    inner: list[nn.Module]
    last: list[nn.Module]
    """Those of the last layer whose output at a token is used at that token only."""


def token_wise(model: Any) -> TokenWise:
    """The MLP of every layer and the projections beside it; empty if a layer has no MLP of that name."""
    layers = [
        model.base_model.get_submodule(name.removesuffix(".mlp"))
        for name, module in model.base_model.named_modules()
        if name.endswith(".mlp") and type(module).__name__.endswith("MLP")
    ]
    if len(layers) != model.config.get_text_config().num_hidden_layers:
        return TokenWise([], [])
    last = [layers[-1].mlp, *projections(layers[-1], called=QUERY_ONLY)]
    parts = [part for layer in layers for part in [layer.mlp, *projections(layer)]]
    return TokenWise([part for part in parts if not any(part is other for other in last)], last)


def projections(module: nn.Module, *, called: Container[str] | None = None) -> Iterator[nn.Module]:
    """Linear maps of a layer outside its MLP, with their adapters: all, or those with a name in `called`."""
    for name, part in module.named_children():
        if name == "mlp":
            continue
        if not isinstance(getattr(part, "base_layer", part), nn.Linear | Conv1D):
            yield from projections(part, called=called)
        elif called is None or name in called:
            yield part


@dataclass(frozen=True)
class TokenIndex:
    """Which tokens of [B, L], flattened, are computed."""

    real_N: Tensor
    """Non-padding tokens, and up to a sixteenth more."""
    predicting_N: Tensor
    """Tokens whose last hidden state is used, and up to a sixteenth more."""
    shape: torch.Size

    @classmethod
    def of(cls, real_BL: Tensor, predicting_K: Tensor) -> "TokenIndex":
        """From a mask of the real tokens and the flat index of the used ones.

        Counts are rounded up: batches of similar lengths then share shapes, compiled oneDNN kernels and
        freed memory.
        """
        unused_X = torch.ones_like(real_BL).flatten().index_fill(0, predicting_K, False)
        return cls(
            false_first(real_BL.flatten().logical_not(), int(real_BL.sum())),
            false_first(unused_X, len(predicting_K)),
            real_BL.shape,
        )


def false_first(flags_X: Tensor, count: int) -> Tensor:
    """Indices of the `count` False entries, then of True ones up to a round number."""
    return flags_X.argsort(stable=True)[: round_up(count)]


def round_up(count: int, *, bits: int = 5) -> int:
    """The next number whose binary digits after the first `bits` are 0."""
    step = 1 << max(0, count.bit_length() - bits)
    return -(-count // step) * step


class Unpadding:
    """Hooks on the token-wise modules of one model."""

    def __init__(self, model: Any) -> None:
        self._index: TokenIndex | None = None
        modules = token_wise(model)
        self.count = len(modules.inner) + len(modules.last)
        for which, parts in (("real_N", modules.inner), ("predicting_N", modules.last)):
            for part in parts:
                part.register_forward_pre_hook(partial(self._pick, which))
                part.register_forward_hook(partial(self._put, which))

    @contextmanager
    def using(self, index: TokenIndex) -> Iterator[None]:
        """Inside, modules compute the tokens of `index` only; the outputs at all others are zeros."""
        before, self._index = self._index, index
        try:
            yield
        finally:
            self._index = before

    def _tokens(self, which: str) -> Tensor | None:
        """The tokens to compute, None where that is all of them."""
        index = self._index
        if index is None or (which == "real_N" and len(index.real_N) >= index.shape.numel()):
            return None
        tokens_N: Tensor = getattr(index, which)
        return tokens_N

    def _pick(self, which: str, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        at_N = self._tokens(which)
        if at_N is None or self._index is None or not args or args[0].shape[:-1] != self._index.shape:
            return None  # inputs of any other shape pass through unchanged
        return args[0].flatten(0, 1).index_select(0, at_N)[None], *args[1:]

    def _put(self, which: str, _: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor | None:
        at_N, index = self._tokens(which), self._index
        if at_N is None or index is None or not args or args[0].shape[:-1] != (1, len(at_N)):
            return None
        flat_XD = out.new_zeros(index.shape.numel(), out.shape[-1])
        return flat_XD.index_copy_(0, at_N, out.squeeze(0)).view(*index.shape, -1)
