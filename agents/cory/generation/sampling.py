"""Batched sampling: one row per game, inverse CDF on uniform numbers that were drawn beforehand.

Knows no games.

Shapes: B rows, P prompt tokens, T response tokens, V vocabulary, R runs of the vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cory.functional.logit_statistics import blocks, softmax_dtype
from cory.runtime import signals
from cory.runtime.arithmetic import running_sums

EOS_CHECK_EVERY = 8
"""Tokens between two checks on an accelerator whether all rows have ended: each check waits for the
device."""

RUN = 128
"""Tokens per run: probabilities are summed by run before the search within one run."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Sampled responses, right-padded with zeros."""

    response_BT: Tensor
    response_length_B: Tensor
    """Tokens up to and including EOS, or the cap."""
    logprobs_BT: Tensor
    """Log-probability of each token, from the very logits it was sampled from."""


class Decoder(Protocol):
    """Step-by-step decoding of a batch with a cache; callers may overwrite the logits it returns."""

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        """Process the prompts; logits [B, V] of the first token. No response gets longer than `tokens`."""
        ...

    def step(self, token_B: Tensor) -> Tensor:
        """Append one token per row; logits [B, V] of the next."""
        ...


class Drawn(NamedTuple):
    """The next token of each row."""

    token_B: Tensor
    logprob_B: Tensor
    finite_B: Tensor
    """Whether all logits of the row are finite."""


def inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> Drawn:
    """The first token whose cumulative probability exceeds `uniform_B` in [0, 1); never one of probability 0.

    Probabilities overwrite the logits where the precision allows. Sums over runs of tokens locate the run,
    then a cumulative sum locates the token in it: summing costs a tenth of a cumulative sum over V.
    """
    in_place = logits_BV.dtype == softmax_dtype(logits_BV)
    p_BV = logits_BV if in_place else torch.empty_like(logits_BV, dtype=softmax_dtype(logits_BV))
    lowest, sums = [], []
    for rows in blocks(logits_BV):
        lowest.append(logits_BV[rows].amin(1))
        torch.softmax(logits_BV[rows], -1, dtype=p_BV.dtype, out=p_BV[rows])
        sums.append(run_sums(p_BV[rows]))
    drawn_B1 = uniform_B[:, None].clamp_min(2**-25)  # a draw of 0 is any below 2**-24, not the least of all
    token_B1 = first_beyond(p_BV, torch.cat(sums), drawn_B1)
    logprob_B = p_BV.gather(1, token_B1)[:, 0].log()
    finite_B = torch.isfinite(torch.cat(lowest)) & torch.isfinite(logprob_B)  # a logit of inf makes p NaN
    return Drawn(token_B1[:, 0], logprob_B, finite_B)


def run_sums(p_BV: Tensor) -> Tensor:
    """Sums of every `RUN` tokens, and of the rest at the end [B, V // RUN + 1]."""
    whole = p_BV.shape[1] // RUN * RUN
    runs_BRX = p_BV[:, :whole].unflatten(1, (whole // RUN, RUN))
    return torch.cat([runs_BRX.sum(2), p_BV[:, whole:].sum(1, keepdim=True)], dim=1)


def first_beyond(p_BV: Tensor, sums_BR: Tensor, share_B1: Tensor) -> Tensor:
    """Index [B, 1] of the first element at which a row's running sum exceeds this share of its total."""
    V, last = p_BV.shape[1], sums_BR.shape[1] - 1
    cdf_BR = running_sums(sums_BR)
    target_B1 = share_B1.to(p_BV) * cdf_BR[:, -1:]
    run_B1 = torch.searchsorted(cdf_BR, target_B1, right=True).clamp_(max=last)
    before_B1 = cdf_BR.gather(1, (run_B1 - 1).clamp(min=0)) * (run_B1 > 0)
    index_BX = run_B1 * RUN + torch.arange(RUN, device=p_BV.device)
    cdf_BX = running_sums(p_BV.gather(1, index_BX.clamp(max=V - 1)) * (index_BX < V))
    below_B1 = cdf_BX[:, -1:] * (1 - torch.finfo(p_BV.dtype).eps)  # sums round: stay within the run
    at_B1 = torch.searchsorted(cdf_BX, torch.minimum(target_B1 - before_B1, below_B1), right=True)
    return (run_B1 * RUN + at_B1).clamp_(max=V - 1)


@torch.no_grad()
def sample(
    decoder: Decoder,
    prompt_BP: Tensor,
    prompt_length_B: Tensor,
    *,
    uniforms_BT: Tensor,
    caps_B: Tensor,
    eos: frozenset[int],
) -> Sampled:
    """Sample responses that end with a token of `eos` or at their cap.

    Token t of a row is a function of that row, the weights and `uniforms_BT[:, t]` alone. `uniforms_BT`
    needs a column for every token of the largest cap. `Stopped` after a signal, FloatingPointError if logits
    are not finite.
    """
    T = int(caps_B.max())
    if uniforms_BT.shape[1] < T:
        raise ValueError(
            f"sampling up to {T} tokens needs {T} columns of uniforms; got {uniforms_BT.shape[1]}"
        )
    ends = torch.tensor(sorted(eos), device=prompt_BP.device)
    response_BT = torch.zeros(len(prompt_BP), T, dtype=torch.long, device=prompt_BP.device)
    logprobs_BT = torch.zeros(len(prompt_BP), T, device=prompt_BP.device)
    length_B = torch.zeros_like(caps_B)
    active_B = caps_B > 0
    sound_BT = torch.ones(response_BT.shape, dtype=torch.bool, device=prompt_BP.device)
    check_every = 1 if prompt_BP.device.type == "cpu" else EOS_CHECK_EVERY
    logits_BV = decoder.start(prompt_BP, prompt_length_B, tokens=T)
    for t in range(T):
        signals.check()
        token_B, logprob_B, finite_B = inverse_cdf(logits_BV, uniforms_BT[:, t])
        sound_BT[:, t] = finite_B | ~active_B
        response_BT[:, t] = token_B * active_B
        logprobs_BT[:, t] = logprob_B * active_B
        length_B += active_B
        active_B = active_B & ~torch.isin(token_B, ends) & (length_B < caps_B)
        if t + 1 == T or (t + 1) % check_every == 0:
            sound, unfinished = torch.stack([sound_BT.all(), active_B.any()]).tolist()  # waits once
            if not sound:
                at, row = (~sound_BT).T.nonzero()[0].tolist()
                raise FloatingPointError(
                    f"logits of row {row} are not finite at response token {at}; the weights are broken"
                )
            if t + 1 == T or not unfinished:
                break
        logits_BV = decoder.step(token_B)
    longest = int(length_B.max())
    return Sampled(
        response_BT=response_BT[:, :longest], response_length_B=length_B, logprobs_BT=logprobs_BT[:, :longest]
    )
