"""Sampling strategies: decoders that process the logits of another (HF: logits processors).

Knows no games.

Shapes: B rows, P prompt tokens, T response tokens, V vocabulary.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from cory.functional.logit_statistics import softmax_dtype
from cory.generation import SamplingStrategy
from cory.generation.sampling import Decoder
from cory.runtime.arithmetic import running_sums


class ProcessedDecoder:
    """Processes all logits of another decoder, in float32 at least, as transformers does."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        return self.processed(self._first(prompt_BP, prompt_length_B, tokens))

    def step(self, token_B: Tensor) -> Tensor:
        logits_BV = self.decoder.step(token_B)
        return self.processed(logits_BV.to(softmax_dtype(logits_BV)))

    def _first(self, prompt_BP: Tensor, prompt_length_B: Tensor, tokens: int) -> Tensor:
        logits_BV = self.decoder.start(prompt_BP, prompt_length_B, tokens=tokens)
        return logits_BV.to(softmax_dtype(logits_BV))

    def processed(self, logits_BV: Tensor) -> Tensor:
        """The logits that are sampled from."""
        raise NotImplementedError


class PenalisedDecoder(ProcessedDecoder):
    """Repetition penalty (Keskar et al. 2019, as in transformers).

    The logit of every token that occurs in a row's prompt or response is divided by `penalty` if positive and
    multiplied by it otherwise.
    """

    def __init__(self, decoder: Decoder, penalty: float) -> None:
        self.decoder, self.penalty = decoder, penalty

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        logits_BV = self._first(prompt_BP, prompt_length_B, tokens)
        at_P = torch.arange(prompt_BP.shape[1], device=prompt_BP.device)
        ids_BP = torch.where(at_P < prompt_length_B[:, None], prompt_BP, prompt_BP[:, :1])
        self.seen_BV = torch.zeros_like(logits_BV, dtype=torch.bool).scatter_(1, ids_BP, True)
        return self.processed(logits_BV)

    def step(self, token_B: Tensor) -> Tensor:
        self.seen_BV.scatter_(1, token_B[:, None], True)
        return super().step(token_B)

    def processed(self, logits_BV: Tensor) -> Tensor:
        lowered_BV = torch.where(logits_BV > 0, logits_BV / self.penalty, logits_BV * self.penalty)
        return torch.where(self.seen_BV, lowered_BV, logits_BV)


class TruncatedDecoder(ProcessedDecoder):
    """Top-k, then top-p truncation (Fan et al. 2018, Holtzman et al. 2020).

    Keeps the `top_k` largest logits, with all ties of the last; of these the fewest most likely ones whose
    probability reaches `top_p`. As in transformers, except that removed tokens get the lowest finite logit
    instead of -inf: their probability is 0 as well, and a NaN still signals broken weights.
    """

    def __init__(self, decoder: Decoder, *, top_k: int, top_p: float) -> None:
        self.decoder, self.top_k, self.top_p = decoder, top_k, top_p

    def processed(self, logits_BV: Tensor) -> Tensor:
        lowest = torch.finfo(logits_BV.dtype).min
        kth_B1 = logits_BV.topk(min(self.top_k, logits_BV.shape[1])).values[:, -1:]
        kept_BV = logits_BV.masked_fill(logits_BV < kth_B1, lowest)
        ascending_BV, order_BV = kept_BV.sort(dim=-1)
        unlikely_BV = running_sums(ascending_BV.softmax(-1)) <= 1 - self.top_p
        unlikely_BV[:, -1] = False
        return kept_BV.masked_fill(unlikely_BV.scatter(1, order_BV, unlikely_BV), lowest)


class GreedyDecoder(ProcessedDecoder):
    """Keeps only the most likely token; of several, the first."""

    def processed(self, logits_BV: Tensor) -> Tensor:
        others_BV = torch.ones_like(logits_BV, dtype=torch.bool)
        others_BV.scatter_(1, logits_BV.argmax(-1, keepdim=True), False)
        return logits_BV.masked_fill(others_BV, torch.finfo(logits_BV.dtype).min)


PENALTY = 1.1
"""Repetition penalty of the paper's evaluation, and of the released scripts in training."""


def with_strategy(decoder: Decoder, strategy: SamplingStrategy | Literal["released"]) -> Decoder:
    """`decoder` with the logits processing of `strategy`; `released` is the penalty alone."""
    if strategy == "own":
        return decoder
    if strategy == "greedy":
        return GreedyDecoder(decoder)
    penalised = PenalisedDecoder(decoder, PENALTY)
    return penalised if strategy == "released" else TruncatedDecoder(penalised, top_k=10, top_p=0.7)


@contextmanager
def dropout_from(uniforms_BT: Tensor, model: nn.Module, device: torch.device) -> Iterator[None]:
    """Enable dropout inside, seeded by `uniforms_BT` only; torch's generators stay untouched."""
    digest = hashlib.blake2b(uniforms_BT.cpu().numpy().tobytes(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(int.from_bytes(digest, "little") >> 1)
        model.train()
        try:
            yield
        finally:
            model.eval()
