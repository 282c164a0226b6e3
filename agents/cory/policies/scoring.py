"""Scoring: log-probs, values, entropy and exact KL of responses that are already written.

Shapes: B rows, T response tokens, K chosen tokens, N tokens of a chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cory.batch import Batch, Rows, columns
from cory.functional.logit_statistics import logit_statistics
from cory.policies.base import Policy, unsharded
from cory.policies.chunked_loss import chunks
from cory.runtime.memory import Attempts


class Evaluation(NamedTuple):
    """Statistics of responses under a policy; zero where no token was chosen."""

    logprobs_BT: Tensor
    values_BT: Tensor
    ref_logprobs_BT: Tensor
    exact_kl_BT: Tensor
    """KL(policy || reference) over the whole vocabulary, in nats."""


def evaluate(policy: Policy, rows: Rows) -> Evaluation:
    """Score `rows` under `policy` and its reference, without gradient.

    If an accelerator's memory runs out, from the start in smaller passes.
    """
    attempts = Attempts("while scoring", budget=policy.memory, device=policy.device)
    with unsharded([policy]):
        while attempts.should_retry():
            with attempts:
                evaluation = _evaluate(policy, rows)
    return evaluation


@torch.no_grad()
def _evaluate(policy: Policy, rows: Rows) -> Evaluation:
    token_K = rows.chosen(rows.response_BT)
    reference, size = policy.reference, policy.max_rows(rows.max_length)  # no more than when learning
    state_KD = rows.in_passes(size, policy.hidden_states)
    ref_state_KD = state_KD if reference is policy else rows.in_passes(size, reference.hidden_states)
    parts: list[Tensor] = []
    for at in chunks(len(token_K), policy.max_logit_rows()):
        logits_NV, ref_logits_NV = policy.logits(state_KD[at]), reference.logits(ref_state_KD[at])
        logprob_N, _, kl_N, ref_logprob_N = logit_statistics(logits_NV, token_K[at], ref_logits_NV)
        parts.append(torch.stack([logprob_N, policy.values(state_KD[at]), ref_logprob_N, kl_N]))
        del logits_NV, ref_logits_NV  # free them before the next chunk's are made
    out = parts[0].new_zeros(4, *rows.mask_BT.shape)
    out[:, rows.mask_BT] = torch.cat(parts, dim=1)
    return Evaluation(*out)


def make_batch(
    policy: Policy, rows: Rows, behaviour_logprobs_BT: Tensor, score_B: Tensor, payoff_B: Tensor
) -> Batch:
    """The learner's batch of `rows`: log-probs, values and KL of `policy` as it is before the update.

    `behaviour_logprobs_BT` are those of what sampled the tokens.
    """
    scored = evaluate(policy, rows)
    return Batch(
        **{name: getattr(rows, name) for name in columns(Rows)},
        behaviour_logprobs_BT=behaviour_logprobs_BT,
        old_logprobs_BT=scored.logprobs_BT,
        ref_logprobs_BT=scored.ref_logprobs_BT,
        exact_kl_BT=scored.exact_kl_BT,
        values_BT=scored.values_BT,
        score_B=score_B,
        payoff_B=payoff_B,
    )


def unscored_batch(rows: Rows, score_B: Tensor, payoff_B: Tensor) -> Batch:
    """The batch of responses that nobody learns from: log-probs, values and KL are 0."""
    zeros_BT = torch.zeros(rows.response_BT.shape, device=rows.response_BT.device)
    known = {name: getattr(rows, name) for name in columns(Rows)}
    unknown = {name: zeros_BT for name in columns(Batch) if name.endswith("_BT") and name not in known}
    return Batch(**known, **unknown, score_B=score_B, payoff_B=payoff_B)
