"""Losses over a vocabulary without holding its logits: chunk by chunk, gradients taken where the logits are.

Shapes: K chosen tokens, N tokens of a chunk, D width.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from agents.algorithms import TokenLoss

CHUNK = 1 << 25
"""Logits held at once, in elements."""
ROUND = 16
"""Products of a multiple of so many rows are fast (`head.py`): so many have chunks, but for the last one."""


def rows_of_chunk(vocab_size: int) -> int:
    """How many tokens' logits fill at most `CHUNK`; 1 at least."""
    return max(1, CHUNK // vocab_size)


def chunks(tokens: int, vocab_size: int) -> Iterator[slice]:
    """Slices of so many tokens that their logits fill at most `CHUNK`: as few as that takes, all alike."""
    most = rows_of_chunk(vocab_size)
    alike = -(-tokens // max(1, -(-tokens // most)))
    size = max(1, min(most, -(-alike // ROUND) * ROUND))
    return (slice(start, start + size) for start in range(0, tokens, size))


class SumOverChunks(torch.autograd.Function):
    """Sum of a per-token loss over chunks whose graphs are freed one by one.

    The gradients with respect to the states and the head are taken in the forward pass, where the logits are,
    and handed on, scaled in place, in the backward pass: the cost of one forward and one backward, the memory
    of one chunk. No two parameters may have one tensor for a gradient, as the terms of a sum would.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        chunk_loss: Callable[[Tensor, slice], TokenLoss],
        vocab_size: int,
        reported: list[TokenLoss],
        state_KD: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        wanted = [p for p in parameters if p.requires_grad]
        learns_states = ctx.needs_input_grad[3]
        state_grad_KD = torch.zeros_like(state_KD) if learns_states else None
        grads: list[Tensor | None] = [None] * len(wanted)
        total = torch.zeros((), device=state_KD.device)
        for at in chunks(len(state_KD), vocab_size):
            with torch.enable_grad():
                leaf_ND = state_KD[at].detach().requires_grad_(learns_states)
                told = chunk_loss(leaf_ND, at)
                loss = told.loss_K.sum()
            sources = [leaf_ND, *wanted] if learns_states else wanted
            found = list(torch.autograd.grad(loss, sources, allow_unused=True))
            if state_grad_KD is not None and (grad_ND := found.pop(0)) is not None:
                state_grad_KD[at] = grad_ND
            for i, more in enumerate(found):
                known = grads[i]
                grads[i] = more if known is None else known if more is None else known.add_(more)
            total += loss.detach()
            reported.append(told._replace(loss_K=loss.detach()))
        given = iter(grads)
        ctx.grads = [state_grad_KD, *(next(given) if p.requires_grad else None for p in parameters)]
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads, ctx.grads = ctx.grads, None  # none is held here: autograd may add others to them in place
        return (None, None, None, *(None if grad is None else grad.mul_(scale) for grad in grads))
