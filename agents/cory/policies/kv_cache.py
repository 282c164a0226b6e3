"""Decoding a causal LM step by step with the KV caches of transformers.

On a CPU the cache grows by a column at every token, since attention over empty columns takes time. On an
accelerator it has all columns from the start: every step has the same shapes and reads nothing back.

Shapes: B rows, P prompt tokens, L columns of prompt + response, X tokens of one call, D width.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache, StaticCache, StaticLayer, StaticSlidingWindowLayer


class _DecodingCache(Cache):
    """Keys and values in the precision of products, with which transformers makes the mask of every token.

    Under autocast rotary keys are float32, and attention would round all of them anew at every token.
    """

    is_compileable = True
    """Otherwise the mask is read back at every token, to see whether attention could do without."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return super().update(_rounded(key_states), _rounded(value_states), layer_idx, *args, **kwargs)


class GrowingCache(_DecodingCache, DynamicCache):
    """A cache that is one column longer after every token."""


class FixedCache(_DecodingCache, StaticCache):
    """A cache of `columns` columns; after the prompt, tokens are written to the column that `column` holds.

    `column` is a number on the device; the caller advances it.
    """

    def __init__(self, config: Any, columns: int, column: Tensor) -> None:
        super().__init__(config, max_cache_len=columns)
        self.layers = [
            _FixedLayer(columns, column, is_sliding=type(layer) is StaticSlidingWindowLayer)
            if type(layer) in (StaticLayer, StaticSlidingWindowLayer)
            else layer
            for layer in self.layers
        ]


class _FixedLayer(StaticLayer):
    """Keys and values [B, heads, columns, head width] of one layer, allocated with the prompt.

    All layers read one `column`, which transformers' own compute in three operations each. A sliding window
    is left to the mask: transformers' layer for it moves all columns and copies an index to the device at
    every token, and branches on a count of the host.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, columns: int, column: Tensor, *, is_sliding: bool) -> None:
        super().__init__(max_cache_len=columns)
        self.cumulative_length, self.is_sliding = column, is_sliding

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the states; those of the prompt are returned as they are, without empty columns."""
        if self.is_initialized:
            self.keys.index_copy_(2, self.cumulative_length, key_states)
            self.values.index_copy_(2, self.cumulative_length, value_states)
            return self.keys, self.values
        self.lazy_initialization(key_states, value_states)
        self.keys[:, :, : key_states.shape[2]].copy_(key_states)
        self.values[:, :, : value_states.shape[2]].copy_(value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that attention sees, and the first of them."""
        return (self.max_cache_len if self.is_initialized else query_length), 0


class CachedDecoder:
    """Left-pads the prompts so that every row's next token is in the same column; positions are per row.

    `trunk` is the pass of the transformer `model` without its head; `logits` maps its last hidden states
    [B, D] to logits.
    """

    def __init__(
        self,
        trunk: Callable[..., Any],
        logits: Callable[[Tensor], Tensor],
        model: Any,
        *,
        window: int | None,
        fixed: bool,
    ) -> None:
        """`fixed` takes a `FixedCache` instead of a `GrowingCache`."""
        self.trunk, self.logits, self.config = trunk, logits, model.config
        self.drops = model.training
        """Whether dropout makes equal rows differ."""
        self.window, self.fixed = window, fixed
        takes = inspect.signature(model.forward).parameters
        self.name = "cache" if "cache" in takes else "past_key_values"  # before transformers 5.24

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        """Equal prompts are computed once: those of a group, or of several samples of a query."""
        P = int(prompt_length_B.max())
        at_BP = torch.arange(P, device=prompt_BP.device) - (P - prompt_length_B)[:, None]
        real_BP, position_BP = at_BP >= 0, at_BP.clamp(min=0)
        self.mask_BL = pad(real_BP, (0, tokens))
        self.column = torch.full((), P, device=prompt_BP.device)
        self.position_B1 = prompt_length_B[:, None].clone()
        self.token_B1 = torch.zeros_like(self.position_B1)
        self.last = (self.window or P + tokens) - 1
        self.cache = (
            FixedCache(self.config, P + tokens, self.column)
            if self.fixed
            else GrowingCache(config=self.config)
        )
        ids_BP = prompt_BP.gather(1, position_BP) * real_BP
        rows = torch.cat([prompt_length_B[:, None], ids_BP], dim=1).cpu()  # not every device finds equal rows
        distinct, at_B = torch.unique(rows, dim=0, return_inverse=True)
        if self.drops or len(distinct) == len(rows):
            return self._forward(ids_BP, position_BP, real_BP)
        one_N = at_B.new_empty(len(distinct)).scatter_(0, at_B, torch.arange(len(rows)))
        one_N, at_B = one_N.to(ids_BP.device), at_B.to(ids_BP.device)
        logits_NV = self._forward(ids_BP[one_N], position_BP[one_N], real_BP[one_N])
        self.cache.reorder_cache(at_B)
        return logits_NV[at_B]

    def step(self, token_B: Tensor) -> Tensor:
        self.token_B1.copy_(token_B[:, None])
        self.mask_BL.index_fill_(1, self.column, True)
        seen_BL = self.mask_BL[:, : sum(self.cache.get_mask_sizes(1, 0))]  # all columns of a fixed cache
        logits_BV = self._forward(self.token_B1, self.position_B1, seen_BL)
        self.position_B1 += 1
        self.position_B1.clamp_(max=self.last)  # a row that has ended would leave the window
        self.column += 1
        return logits_BV

    def _forward(self, ids_BX: Tensor, position_BX: Tensor, mask_BL: Tensor) -> Tensor:
        out = self.trunk(
            input_ids=ids_BX,
            attention_mask=mask_BL,
            position_ids=position_BX,
            use_cache=True,
            **{self.name: self.cache},
        )
        return self.logits(out.last_hidden_state[:, -1])


class UncachedDecoder:
    """Computes every token from its whole prefix, as the scorer does: right-padded, without a cache.

    For models whose caches are not those of transformers or do not decode as the model scores.
    """

    def __init__(self, trunk: Callable[..., Any], logits: Callable[[Tensor], Tensor]) -> None:
        self.trunk, self.logits = trunk, logits

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        self.ids_BL, self.length_B = pad(prompt_BP, (0, tokens)), prompt_length_B.clone()
        return self._forward()

    def step(self, token_B: Tensor) -> Tensor:
        self.ids_BL.scatter_(1, self.length_B[:, None], token_B[:, None])
        self.length_B += 1
        return self._forward()

    def _forward(self) -> Tensor:
        states_BLD = self.trunk(input_ids=self.ids_BL[:, : int(self.length_B.max())], use_cache=False)
        last_B11 = (self.length_B - 1)[:, None, None]
        return self.logits(torch.take_along_dim(states_BLD.last_hidden_state, last_B11, dim=1)[:, 0])


def _rounded(states: Tensor) -> Tensor:
    """Keys or values as attention reads them under the autocast in effect."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states
