"""Decoding a causal LM step by step with the KV cache of transformers.

Shapes: B rows, P prompt tokens, L tokens of prompt + response so far, X tokens of one call, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache


class _Cache(DynamicCache):
    """A cache with which transformers makes the mask of every token.

    Otherwise it reads the mask back from the device at every token, to see whether it could do without.
    """

    is_compileable = True


class CachedDecoder:
    """Left-pads the prompts so that every row's next token is in the same column; positions are per row.

    `trunk` is the transformer without its head; `logits` maps its last hidden states [B, D] to logits.
    """

    def __init__(self, trunk: Callable[..., Any], logits: Callable[[Tensor], Tensor], config: Any) -> None:
        """`config` is that of the model."""
        self.trunk, self.logits, self.config = trunk, logits, config

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        P = int(prompt_length_B.max())
        at_BP = torch.arange(P, device=prompt_BP.device) - (P - prompt_length_B)[:, None]
        self.mask_BL = (at_BP >= 0).long()
        self.position_B = prompt_length_B - 1
        self.cache = _Cache(config=self.config)
        ids_BP = prompt_BP.gather(1, at_BP.clamp(min=0)) * (at_BP >= 0)
        return self._forward(ids_BP, at_BP.clamp(min=0), real_BX=at_BP >= 0)

    def step(self, token_B: Tensor) -> Tensor:
        self.mask_BL = torch.cat([self.mask_BL, torch.ones_like(self.mask_BL[:, :1])], dim=1)
        self.position_B = self.position_B + 1
        return self._forward(token_B[:, None], self.position_B[:, None])

    def _forward(self, ids_BX: Tensor, position_BX: Tensor, real_BX: Tensor | None = None) -> Tensor:
        out = self.trunk(
            real_BL=real_BX,
            input_ids=ids_BX,
            attention_mask=self.mask_BL,
            position_ids=position_BX,
            past_key_values=self.cache,
            use_cache=True,
        )
        return self.logits(out.last_hidden_state[:, -1])
