"""A causal LM in the middle of its sentences, with a KV cache.

Shapes: B rows, P prompt tokens, L tokens of prompt + response so far, X tokens read at once, H heads,
D channels of a head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer

from agents.policies.narrow import Wanted

ROOM = 8
"""Tokens for which a cache makes room at once."""
READY = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")
"""Kinds of models that are known to take a mask as attention wants it."""


class CachedDecoder:
    """Left-pads the prompts so that every row's next token stands in one column; positions are its own.

    `trunk` is the transformer without its head, `logits` what turns its last states [B, D] into logits,
    `config` that of the model.
    """

    def __init__(self, trunk: Callable[..., Any], logits: Callable[[Tensor], Tensor], config: Any) -> None:
        self.trunk, self.logits, self.config = trunk, logits, config

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        P = self.length = int(prompt_length_B.max())
        at_BP = torch.arange(P, device=prompt_BP.device) - (P - prompt_length_B)[:, None]
        self.attend_BL = pad((at_BP >= 0).long(), (0, -P % ROOM))
        self.position_B = prompt_length_B - 1
        self.cache = roomy_cache(self.config)
        self.ready = self.config.model_type in READY and all(
            isinstance(layer, RoomyLayer) for layer in self.cache.layers
        )
        last_B = (torch.arange(len(at_BP), device=prompt_BP.device) + 1) * P - 1
        return self._read(
            prompt_BP.gather(1, at_BP.clamp(min=0)) * (at_BP >= 0),
            at_BP.clamp(min=0),
            self.attend_BL,
            wanted=Wanted.of(at_BP >= 0, last_B),
        )

    def step(self, token_B: Tensor) -> Tensor:
        if self.length == self.attend_BL.shape[1]:
            self.attend_BL = pad(self.attend_BL, (0, ROOM))
        self.attend_BL[:, self.length] = 1
        self.length += 1
        self.position_B = self.position_B + 1
        return self._read(token_B[:, None], self.position_B[:, None], self._mask())

    def _mask(self) -> Tensor:
        """What the newest token of every row may see. Of [B, L] transformers makes [B, 1, 1, L] at every
        token, and for SDPA waits for the device to know whether anything is masked."""
        if not self.ready or (attention := self.config._attn_implementation) not in ("eager", "sdpa"):
            return self.attend_BL
        seen_B11L = self.attend_BL[:, None, None].bool()
        if attention == "sdpa":
            return seen_B11L
        closed = torch.finfo(torch.float32).min
        return torch.zeros(seen_B11L.shape, device=seen_B11L.device).masked_fill_(~seen_B11L, closed)

    def _read(
        self, ids_BX: Tensor, position_BX: Tensor, mask: Tensor, wanted: Wanted | None = None
    ) -> Tensor:
        told = self.trunk(
            wanted=wanted,
            input_ids=ids_BX,
            attention_mask=mask,
            position_ids=position_BX,
            past_key_values=self.cache,
            use_cache=True,
        )
        return self.logits(told.last_hidden_state[:, -1])


def roomy_cache(config: Any) -> DynamicCache:
    """That of transformers for such a model; layers that remember every token have room behind them."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class RoomyLayer(DynamicLayer):
    """Keys and values [B, H, L, D] in memory that has room for some more, so that a token is written behind
    the others instead of with all of them anew. Attention sees the room too: the mask must close it."""

    length = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        before, self.length = self.length, self.length + key_states.shape[-2]
        if (missing := self.length - self.keys.shape[-2]) > 0:
            room = (0, 0, 0, missing + -missing % ROOM)
            self.keys, self.values = pad(self.keys, room), pad(self.values, room)
        self.keys[:, :, before : self.length] = key_states
        self.values[:, :, before : self.length] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        length = self.length + query_length
        return length + -length % ROOM, 0  # keys and values that `update` will give

    def get_seq_length(self) -> int:
        return self.length
