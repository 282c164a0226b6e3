"""Chunked loss: a loss over a vocabulary without holding the logits of all tokens at once.

Shapes: K chosen tokens, N tokens of a chunk, D width.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cory.functional import kl
from cory.functional.logit_statistics import logit_statistics
from cory.token_loss import LossFunction, TokenLoss, Tokens, check_loss

ROUND = 16
"""Chunks have a multiple of this many rows, except the last: matrix products of such sizes are fast."""


def chunks(tokens: int, max_rows: int) -> Iterator[slice]:
    """Slices of at most `max_rows` tokens: as few as possible, of equal size."""
    equal = -(-tokens // max(1, -(-tokens // max_rows)))
    size = max(1, min(max_rows, -(-equal // ROUND) * ROUND))
    return (slice(start, start + size) for start in range(0, tokens, size))


class KLLoss(NamedTuple):
    """A KL term of the loss: `coef` times the estimator `kind`."""

    kind: str
    coef: float


class SumOverChunks(torch.autograd.Function):
    """Sum of a per-token loss over chunks whose graphs are freed one by one.

    Gradients with respect to the states and the head are taken in the forward pass, where the logits are, and
    scaled in place in the backward pass: the cost of one forward and one backward with the memory of one
    chunk. No two parameters may share a gradient tensor, as the terms of a sum would.
    """

    @staticmethod
    def forward(
        ctx: Any,
        policy: Any,
        token_loss: LossFunction,
        kl_loss: KLLoss | None,
        token_K: Tensor,
        recorded: Mapping[str, Tensor],
        ref_state_KD: Tensor | None,
        reported: list[TokenLoss],
        state_KD: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """`recorded` are the columns of `Tokens` without a gradient; `reported` gets what each chunk reports.

        `ref_state_KD` are the reference's hidden states where the loss needs the exact KL.
        """
        trained = [p for p in parameters if p.requires_grad]
        states_need_grad = ctx.needs_input_grad[7]
        state_grad_KD = torch.zeros_like(state_KD) if states_need_grad else None
        grads: list[Tensor | None] = [None] * len(trained)
        total = torch.zeros((), device=state_KD.device)
        for at in chunks(len(state_KD), policy.max_logit_rows()):
            ref_logits_NV = None if ref_state_KD is None else policy.reference.logits(ref_state_KD[at])
            with torch.enable_grad():
                leaf_ND = state_KD[at].detach().requires_grad_(states_need_grad)
                statistics = logit_statistics(policy.logits(leaf_ND), token_K[at], ref_logits_NV)
                tokens = Tokens(
                    logprob_K=statistics.logprob_N,
                    value_K=policy.values(leaf_ND),
                    entropy_K=statistics.entropy_N,
                    exact_kl_K=None if ref_state_KD is None else statistics.kl_N,
                    **{name: tensor_K[at] for name, tensor_K in recorded.items()},
                )
                part = token_loss(tokens)
                check_loss(part, tokens, token_loss)
                if kl_loss is not None:
                    part = part._replace(loss_K=kl.add_to_loss(part.loss_K, tokens, **kl_loss._asdict()))
                loss = part.loss_K.sum()
            sources = [leaf_ND, *trained] if states_need_grad else trained
            gradients = list(torch.autograd.grad(loss, sources, allow_unused=True))
            if state_grad_KD is not None and (grad_ND := gradients.pop(0)) is not None:
                state_grad_KD[at] = grad_ND
            for i, more in enumerate(gradients):
                known = grads[i]
                grads[i] = more if known is None else known if more is None else known.add_(more)
            total += loss.detach()
            reported.append(part._replace(loss_K=loss.detach()))
        of_trained = iter(grads)
        ctx.grads = [state_grad_KD, *(next(of_trained) if p.requires_grad else None for p in parameters)]
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None  # keep no reference: autograd may add to them in place
        return (*[None] * 7, *(None if grad is None else grad.mul_(scale) for grad in grads))
