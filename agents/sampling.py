"""Batched sampling: one row per game, a KV cache, inverse CDF on numbers that were drawn beforehand.

Knows no games.

Shapes: B rows, P prompt tokens, T response tokens, D width, V vocabulary.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from agents.batch import concat
from agents.softmax import blocks, precise


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Responses, right-padded with zeros."""

    response_BT: Tensor
    response_length_B: Tensor
    """Tokens up to and including EOS, or the cap."""
    logprobs_BT: Tensor
    """Log-probability of each token, from the very logits it was sampled from."""


class Decoder(Protocol):
    """A policy in the middle of its sentences; it remembers what every row has read, and not its logits:
    they may be written over."""

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        """Read the prompts; logits [B, V] of the first token."""
        ...

    def step(self, token_B: Tensor) -> Tensor:
        """Read one more token per row; logits [B, V] of the next."""
        ...


class PenalisedDecoder:
    """Another decoder, with a repetition penalty (Keskar et al. 2019, as in transformers).

    The logit of every token that a row has read, in its prompt or its response, is divided by `penalty` where
    it is positive and multiplied by it where it is not.
    """

    def __init__(self, decoder: Decoder, penalty: float) -> None:
        self.decoder, self.penalty = decoder, penalty

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        logits_BV = self.decoder.start(prompt_BP, prompt_length_B)
        at_P = torch.arange(prompt_BP.shape[1], device=prompt_BP.device)
        read_BP = torch.where(at_P < prompt_length_B[:, None], prompt_BP, prompt_BP[:, :1])
        self.seen_BV = torch.zeros_like(logits_BV, dtype=torch.bool).scatter_(1, read_BP, True)
        return self._penalised(logits_BV)

    def step(self, token_B: Tensor) -> Tensor:
        self.seen_BV.scatter_(1, token_B[:, None], True)
        return self._penalised(self.decoder.step(token_B))

    def _penalised(self, logits_BV: Tensor) -> Tensor:
        lowered_BV = torch.where(logits_BV > 0, logits_BV / self.penalty, logits_BV * self.penalty)
        return torch.where(self.seen_BV, lowered_BV, logits_BV)


class TruncatedDecoder:
    """Another decoder, of whose tokens only likely ones remain (Fan et al. 2018, Holtzman et al. 2020).

    First the `top_k` largest logits, with all that equal the last of them; of these the fewest, likeliest
    first, whose probability reaches `top_p`. As in transformers, but the others keep a finite logit, the
    lowest there is: their probability is 0 all the same, and a NaN remains the sign of broken weights.
    """

    def __init__(self, decoder: Decoder, *, top_k: int, top_p: float) -> None:
        self.decoder, self.top_k, self.top_p = decoder, top_k, top_p

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        return self._truncated(self.decoder.start(prompt_BP, prompt_length_B))

    def step(self, token_B: Tensor) -> Tensor:
        return self._truncated(self.decoder.step(token_B))

    def _truncated(self, logits_BV: Tensor) -> Tensor:
        lowest = torch.finfo(logits_BV.dtype).min
        kth_B1 = logits_BV.topk(min(self.top_k, logits_BV.shape[1])).values[:, -1:]
        kept_BV = logits_BV.masked_fill(logits_BV < kth_B1, lowest)
        rising_BV, order_BV = kept_BV.sort(dim=-1)
        unlikely_BV = rising_BV.softmax(-1).cumsum(-1) <= 1 - self.top_p
        unlikely_BV[:, -1] = False
        return kept_BV.masked_fill(unlikely_BV.scatter(1, order_BV, unlikely_BV), lowest)


class GreedyDecoder:
    """Another decoder, of whose tokens only the likeliest stays possible; of several, the first."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        return self._greedy(self.decoder.start(prompt_BP, prompt_length_B))

    def step(self, token_B: Tensor) -> Tensor:
        return self._greedy(self.decoder.step(token_B))

    def _greedy(self, logits_BV: Tensor) -> Tensor:
        others_BV = torch.ones_like(logits_BV, dtype=torch.bool)
        others_BV.scatter_(1, logits_BV.argmax(-1, keepdim=True), False)
        return logits_BV.masked_fill(others_BV, torch.finfo(logits_BV.dtype).min)


Manner = Literal["own", "paper", "greedy"]
"""How a policy that is judged speaks: from its own distribution; as the paper's evaluations do; or always its
likeliest token."""


def spoken(decoder: Decoder, manner: Manner) -> Decoder:
    """`decoder` in a manner of speaking: `paper` is repetition penalty 1.1, then top-k 10, then top-p 0.7."""
    if manner == "own":
        return decoder
    if manner == "greedy":
        return GreedyDecoder(decoder)
    return TruncatedDecoder(PenalisedDecoder(decoder, 1.1), top_k=10, top_p=0.7)


@contextmanager
def dropout_from(uniforms_BT: Tensor, model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, `model` drops out, by chance that is a function of `uniforms_BT` alone; torch keeps its own."""
    digest = hashlib.blake2b(uniforms_BT.cpu().numpy().tobytes(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(digest, "little") >> 1)
        model.train()
        try:
            yield
        finally:
            model.eval()


def together(parts: Sequence[Sampled]) -> Sampled:
    """Rows that were sampled in parts."""
    told = {name: [getattr(part, name) for part in parts] for name in Sampled.__dataclass_fields__}
    return Sampled(**{name: concat(tensors) for name, tensors in told.items()})


LOOK = 8
"""Tokens after which an accelerator is asked whether all rows have ended: asking waits for it."""


class Drawn(NamedTuple):
    """The next token of each row."""

    token_B: Tensor
    logprob_B: Tensor
    finite_B: Tensor
    """Whether all logits of the row are."""


RUN = 128
"""Tokens whose probabilities are added up before a search among them."""


def inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> Drawn:
    """The first token whose cumulative probability exceeds `uniform_B`, in [0, 1); impossible ones never.

    Probabilities take the place of the logits where these are as precise. Found by sums of runs of tokens,
    then within one run: a sum costs a tenth of a cumulative one.
    """
    fits = logits_BV.dtype == precise(logits_BV)
    p_BV = logits_BV if fits else torch.empty_like(logits_BV, dtype=precise(logits_BV))
    lowest, sums = [], []
    for at in blocks(logits_BV):
        lowest.append(logits_BV[at].amin(1))
        torch.softmax(logits_BV[at], -1, dtype=p_BV.dtype, out=p_BV[at])
        sums.append(run_sums(p_BV[at]))
    token_B1 = first_beyond(p_BV, torch.cat(sums), uniform_B[:, None])
    logprob_B = p_BV.gather(1, token_B1)[:, 0].log()
    finite_B = torch.isfinite(torch.cat(lowest)) & torch.isfinite(logprob_B)  # a logit of inf makes p NaN
    return Drawn(token_B1[:, 0], logprob_B, finite_B)


def run_sums(p_NV: Tensor) -> Tensor:
    """Of every `RUN` tokens, and of those left at the end [N, V // RUN + 1]."""
    whole = p_NV.shape[1] // RUN * RUN
    runs_NRX = p_NV[:, :whole].unflatten(1, (whole // RUN, RUN))
    return torch.cat([runs_NRX.sum(2), p_NV[:, whole:].sum(1, keepdim=True)], dim=1)


def first_beyond(p_BV: Tensor, sums_BR: Tensor, share_B1: Tensor) -> Tensor:
    """Index [B, 1] of the first element at which the running sum of a row exceeds this share of the whole."""
    V, last = p_BV.shape[1], sums_BR.shape[1] - 1
    cdf_BR = sums_BR.cumsum(1)
    sought_B1 = share_B1.to(p_BV) * cdf_BR[:, -1:]
    run_B1 = torch.searchsorted(cdf_BR, sought_B1, right=True).clamp_(max=last)
    before_B1 = cdf_BR.gather(1, (run_B1 - 1).clamp(min=0)) * (run_B1 > 0)
    index_BX = run_B1 * RUN + torch.arange(RUN, device=p_BV.device)
    cdf_BX = (p_BV.gather(1, index_BX.clamp(max=V - 1)) * (index_BX < V)).cumsum(1)
    below_B1 = cdf_BX[:, -1:] * (1 - torch.finfo(p_BV.dtype).eps)  # sums round: stay within the run
    at_B1 = torch.searchsorted(cdf_BX, torch.minimum(sought_B1 - before_B1, below_B1), right=True)
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
    interrupt: Callable[[], None] = lambda: None,
) -> Sampled:
    """Responses that end with a token of `eos` or at their cap.

    Token t of a row is a function of that row, its weights and `uniforms_BT[:, t]` alone. `uniforms_BT` needs
    a column for every token the largest cap allows. `interrupt` is called before every token and may raise.
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
    writing_B = caps_B > 0
    sound_BT = torch.ones(response_BT.shape, dtype=torch.bool, device=prompt_BP.device)
    every = 1 if prompt_BP.device.type == "cpu" else LOOK
    logits_BV = decoder.start(prompt_BP, prompt_length_B)
    for t in range(T):
        interrupt()
        token_B, logprob_B, finite_B = inverse_cdf(logits_BV, uniforms_BT[:, t])
        sound_BT[:, t] = finite_B | ~writing_B
        response_BT[:, t] = token_B * writing_B
        logprobs_BT[:, t] = logprob_B * writing_B
        length_B += writing_B
        writing_B = writing_B & ~torch.isin(token_B, ends) & (length_B < caps_B)
        if t + 1 == T or (t + 1) % every == 0:
            if not bool(sound_BT.all()):
                at, row = (~sound_BT).T.nonzero()[0].tolist()
                raise FloatingPointError(
                    f"logits of row {row} are not finite at response token {at}; the weights are broken"
                )
            if t + 1 == T or not bool(writing_B.any()):
                break
        logits_BV = decoder.step(token_B)
    longest = int(length_B.max())
    return Sampled(
        response_BT=response_BT[:, :longest], response_length_B=length_B, logprobs_BT=logprobs_BT[:, :longest]
    )
