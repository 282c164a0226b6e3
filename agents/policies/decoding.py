"""A causal LM in the middle of its sentences, with a KV cache.

Shapes: B rows, P prompt tokens, L tokens of prompt + response so far, X tokens read at once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from agents.policies.narrow import Wanted


class CachedDecoder:
    """Left-pads the prompts so that every row's next token stands in one column; positions are its own.

    `trunk` is the transformer without its head, `logits` what turns its last states [B, D] into logits.
    """

    def __init__(self, trunk: Callable[..., Any], logits: Callable[[Tensor], Tensor]) -> None:
        self.trunk, self.logits = trunk, logits

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        P = int(prompt_length_B.max())
        at_BP = torch.arange(P, device=prompt_BP.device) - (P - prompt_length_B)[:, None]
        self.attend_BL = (at_BP >= 0).long()
        self.position_B = prompt_length_B - 1
        self.cache: Any = None
        last_B = (torch.arange(len(at_BP), device=prompt_BP.device) + 1) * P - 1
        return self._read(
            prompt_BP.gather(1, at_BP.clamp(min=0)) * self.attend_BL,
            at_BP.clamp(min=0),
            wanted=Wanted.of(at_BP >= 0, last_B),
        )

    def step(self, token_B: Tensor) -> Tensor:
        self.attend_BL = torch.cat([self.attend_BL, torch.ones_like(token_B)[:, None]], dim=1)
        self.position_B = self.position_B + 1
        return self._read(token_B[:, None], self.position_B[:, None])

    def _read(self, ids_BX: Tensor, position_BX: Tensor, wanted: Wanted | None = None) -> Tensor:
        told = self.trunk(
            wanted=wanted,
            input_ids=ids_BX,
            attention_mask=self.attend_BL,
            position_ids=position_BX,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache = told.past_key_values
        return self.logits(told.last_hidden_state[:, -1])
