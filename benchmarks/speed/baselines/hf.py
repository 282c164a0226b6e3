"""The vanilla Hugging Face baseline: `examples/cory_single_file.py` with what the libraries offer for speed.

Responses come from `model.generate`, which has a KV cache; Adam is fused; products may be in bfloat16;
micro-batches are as large as fit beside the other processes. What PPO computes is the example's, which is
tested against the released code.

Shapes: B games, P prompt tokens, T response tokens.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from examples.cory_single_file import PPO, Policy, Rollout, Settings

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**28)}
"""Environment in which glibc keeps freed memory, so that large tensors need no page faults. CORY does the
same."""
MINIBATCH = 64
"""Rows per pass of learning: more do not fit beside the other workers."""


class HFPolicy(Policy):
    """The example's policy, with autocast and `generate`; it reads and writes responses on the CPU."""

    model: Any

    def __init__(self, model: Any, *, precision: str = "float32") -> None:
        super().__init__(model)
        self.to(model.device)
        dtype = getattr(torch, precision)
        self.autocast = torch.autocast(model.device.type, dtype, enabled=dtype is not torch.float32)

    def forward(self, r: Rollout) -> tuple[Tensor, Tensor]:
        """As in the example, in float32."""
        with self.autocast:
            logits_BTV, values_BT = super().forward(r)
        return logits_BTV.float(), values_BT.float()

    @torch.no_grad()
    def respond(
        self, prompt_BP: Tensor, real_BP: Tensor, caps_B: Tensor, eos: list[int]
    ) -> tuple[Tensor, Tensor]:
        """As in the example, with one cap for all rows."""
        with self.autocast:
            ids_BL = self.model.generate(
                input_ids=prompt_BP.to(self.model.device),
                attention_mask=real_BP.long().to(self.model.device),
                do_sample=True,
                top_k=0,
                max_new_tokens=int(caps_B.max()),
                eos_token_id=eos,
                pad_token_id=eos[0],
            )
        response_BT = ids_BL[:, prompt_BP.shape[1] :].cpu()
        is_eos_BT = torch.isin(response_BT, torch.tensor(eos)).long()
        return response_BT, is_eos_BT.cumsum(1) == is_eos_BT  # all up to the first EOS


def make_learners(model: Any, *, batch: int, precision: str = "float32") -> dict[str, PPO]:
    """PPO for two copies of a model, beside a third that is their reference."""
    reference = HFPolicy(model, precision=precision)
    settings = Settings(
        lr=1.41e-5,
        kl="full",
        kl_coef=0.3,
        minibatch=MINIBATCH,
        accumulate=-(-batch // MINIBATCH),
    )
    learners = {}
    for name in ("llm_1", "llm_2"):
        learners[name] = PPO(copy.deepcopy(reference).requires_grad_(), reference, settings)
        weights = learners[name].policy.parameters()
        learners[name].optimizer = torch.optim.Adam(weights, lr=settings.lr, fused=True)
    return learners
