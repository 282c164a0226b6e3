"""What every policy does with hidden states: score tokens, take losses chunk by chunk, sample.

Shapes: B rows, P prompt tokens, T response tokens, K chosen tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from agents.algorithms import TokenLoss, Tokens
from agents.batch import Batch, Rows
from agents.policies.chunks import SumOverChunks, chunks, rows_of_chunk
from agents.sampling import Decoder, Manner, Sampled, sample, spoken, together
from agents.softmax import Statistics, statistics


class Live(NamedTuple):
    """What a policy made of responses, with its gradient still to be taken, once."""

    told: Statistics
    value_K: Tensor


class Evaluation(NamedTuple):
    """What a policy makes of responses already written; zero where no token was chosen."""

    logprobs_BT: Tensor
    values_BT: Tensor
    entropy_BT: Tensor
    ref_logprobs_BT: Tensor
    exact_kl_BT: Tensor
    """KL(policy || reference) over the whole vocabulary, in nats."""
    live: Live | None = None
    """Where it was asked for."""


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """Sums over the chosen tokens of a batch; divide by all `tokens`, micro-batches and ranks, for means."""

    loss: Tensor
    """Carries the gradient."""
    tokens: int
    numbers: dict[str, Tensor]
    largest: dict[str, Tensor]
    """Not sums: the largest value over the tokens."""


Joint = Callable[[Sequence[tuple["Policy", Rows]]], list[Tensor]]
"""Reads the rows of several policies in one pass: the `deciding_states` of each."""


class Policy(nn.Module):
    """An LLM that learns: something that turns rows into hidden states, a head, a value head.

    Kinds supply `deciding_states`, `logits`, `values`, `head_parameters` and `decoder`. The distribution that
    is sampled is the distribution that is scored: temperature is in both, nothing else is between.
    """

    name: str
    eos: frozenset[int]
    pad: int
    vocab_size: int
    temperature: float = 1.0
    window: int | None = None
    """Longest prompt + response in tokens; None = any."""
    precision: str = "float32"
    """Of its arithmetic."""
    mismatch: Literal["none", "released"] = "none"
    """`released`: sample with repetition penalty 1.1 and dropout, score without either, as the released code
    does. For comparison only."""
    tolerance: float = 1e-4
    """Nats by which the sampler and the learner may differ on a token (INVARIANTS 1)."""
    joint: Joint | None = None
    """How its rows are read in one pass with those of policies that have the same; None = only alone."""
    version: int = 0
    """Optimiser steps taken: says which weights a rollout was played with."""

    def __init__(self) -> None:
        super().__init__()
        self._reference: tuple[Policy, ...] = ()

    @property
    def reference(self) -> "Policy":
        """The frozen policy this one came from. Not a submodule: its weights are nobody's parameters."""
        if not self._reference:
            raise ValueError(
                f"policy {self.name!r} has no reference; call policy.set_reference before pricing KL"
            )
        return self._reference[0]

    def set_reference(self, policy: "Policy") -> None:
        """Price KL against `policy` from now on."""
        self._reference = (policy,)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def rows_at_once(self, length: int, *, learning: bool = True) -> int:
        """How many rows of `length` tokens one pass should take, for the memory of their activations: of all
        layers where gradients are wanted, else of one and a cache for all."""
        return 1 << 30

    def may_keep(self, rows: int, longest: int, tokens: int, *, sharing: int) -> bool:
        """Whether a pass over so many rows and response tokens may outlive the work of `sharing` policies:
        what all of them keep must fit the memory of one pass and of two chunks of logits."""
        chunk = rows_of_chunk(self.vocab_size)
        return rows * sharing <= self.rows_at_once(longest) and tokens <= min(chunk, 2 * chunk // sharing)

    def all_states(self, rows: Rows) -> Tensor:
        """`deciding_states` without gradient, in as many passes as memory asks for."""
        size = self.rows_at_once(rows.longest, learning=False)
        with torch.no_grad():
            return torch.cat([self.deciding_states(part) for part in rows.split(size)])

    def deciding_states(self, rows: Rows) -> Tensor:
        """Hidden states [K, D] in which each chosen token was chosen, in the order of `rows.mask_BT`."""
        raise NotImplementedError

    def logits(self, state_KD: Tensor) -> Tensor:
        """Next-token logits [K, V], temperature applied, in the precision of the arithmetic: whoever takes
        their softmax does so in float32. A tensor of its own: its memory may be written over."""
        raise NotImplementedError

    def statistics(
        self,
        state_KD: Tensor,
        token_K: Tensor,
        ref_logits_KV: Tensor | None = None,
        *,
        of_kl: bool = True,
    ) -> Statistics:
        """What a loss asks of the distributions of chosen tokens (`agents.softmax`); gradients flow once."""
        return statistics(self.logits(state_KD), token_K, ref_logits_KV, of_kl=of_kl)

    def values(self, state_KD: Tensor) -> Tensor:
        """Expected payoff still to come [K]."""
        raise NotImplementedError

    def head_parameters(self) -> Sequence[nn.Parameter]:
        """Everything trainable that `logits` and `values` use."""
        raise NotImplementedError

    def value_parameters(self) -> Sequence[nn.Parameter]:
        """Those that only `values` uses."""
        raise NotImplementedError

    def critic_states(self, rows: Rows, longest: int) -> Tensor:
        """What a central critic reads of each chosen token [K, D], in the order of `rows.mask_BT`.

        `rows` may reach `longest` tokens of prompt + response.
        """
        return self.deciding_states(rows)

    def decoder(self) -> Decoder:
        """A fresh decoder for `sample`."""
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Everything this policy is, in a form that needs nothing else."""
        raise NotImplementedError

    def save_merged(self, folder: str | Path) -> None:
        """The same as one whole model, for kinds that save parts of one."""
        self.save(folder)

    def restore(self, folder: str | Path) -> None:
        """Take what `save` wrote, in place: optimisers go on with the same parameters."""
        raise NotImplementedError

    def sample(
        self,
        prompt_BP: Tensor,
        prompt_length_B: Tensor,
        *,
        uniforms_BT: Tensor,
        caps_B: Tensor,
        manner: Manner = "own",
        interrupt: Callable[[], None] = lambda: None,
    ) -> Sampled:
        """Answer each prompt; see `agents.sampling.sample`. Another `manner` is for evaluations only."""
        longest = int((prompt_length_B + caps_B).max())
        self._check_window(longest)
        size = min(rows_of_chunk(self.vocab_size), self.rows_at_once(longest, learning=False))
        inputs = (tensor.to(self.device) for tensor in (prompt_BP, prompt_length_B, uniforms_BT, caps_B))
        parts = zip(*(tensor.split(size) for tensor in inputs), strict=True)
        return together([
            sample(
                spoken(self.decoder(), manner),
                prompt_NP,
                length_N,
                uniforms_BT=uniforms_NT,
                caps_B=caps_N,
                eos=self.eos,
                interrupt=interrupt,
            )
            for prompt_NP, length_N, uniforms_NT, caps_N in parts
        ])  # fmt: skip

    def _check_window(self, needed: int) -> None:
        if self.window is not None and needed > self.window:
            raise ValueError(
                f"a prompt and its response may reach {needed} tokens; policy {self.name!r} has a window of "
                f"{self.window}: lower the response cap, shorten the query or take a model with a larger one"
            )

    @torch.no_grad()
    def evaluate(
        self, rows: Rows, *, states: tuple[Tensor, Tensor] | None = None, live: bool = False
    ) -> Evaluation:
        """Log-probs, values, entropy and exact KL to the reference of responses already written.

        `states` are this policy's and its reference's deciding states, where somebody has them. `live` keeps
        the pass, logits and all, to learn from: for rows that fit one pass and one chunk.
        """
        token_K = rows.chosen(rows.response_BT)
        if live:
            return self._evaluate_live(rows, token_K)
        state_KD, ref_state_KD = states or (self.all_states(rows), self.reference.all_states(rows))
        parts: list[Tensor] = []
        for at in chunks(len(token_K), self.vocab_size):
            logits_NV, ref_logits_NV = self.logits(state_KD[at]), self.reference.logits(ref_state_KD[at])
            told = statistics(logits_NV, token_K[at], ref_logits_NV)
            value_N = self.values(state_KD[at])
            parts.append(
                torch.stack([told.logprob_N, value_N, told.entropy_N, told.ref_logprob_N, told.kl_N])
            )
            del logits_NV, ref_logits_NV  # before the next are made
        return _in_place(torch.cat(parts, dim=1), rows.mask_BT)

    def _evaluate_live(self, rows: Rows, token_K: Tensor) -> Evaluation:
        ref_logits_KV = self.reference.logits(self.reference.all_states(rows))
        with torch.enable_grad():
            state_KD = self.deciding_states(rows)
            told = self.statistics(state_KD, token_K, ref_logits_KV, of_kl=False)
            value_K = self.values(state_KD)
        told_5K = torch.stack([told.logprob_N, value_K, told.entropy_N, told.ref_logprob_N, told.kl_N])
        return _in_place(told_5K, rows.mask_BT)._replace(live=Live(told, value_K))

    def fingerprint(self) -> tuple[tuple[int, int, bool], ...]:
        """Changes when a weight is written to, replaced, frozen or thawed; costs no look at the weights."""
        return tuple((p.data_ptr(), p._version, p.requires_grad) for p in self.parameters())

    def forward(
        self,
        batch: Batch,
        targets: dict[str, Tensor],
        token_loss: Callable[[Tokens], TokenLoss],
        *,
        exact_kl: bool = False,
        states: tuple[Tensor, Tensor | None] | None = None,
    ) -> LossSums:
        """One pass of the trunk; the head, the value head and `token_loss` chunk by chunk.

        `targets` holds advantage_BT and return_BT; `exact_kl` asks for `Tokens.exact_kl_K`, at the price of a
        pass of the reference. No logits outlive their chunk and nothing is computed twice: the gradient of a
        chunk is taken while its logits are at hand (see `SumOverChunks`). `states` are the trunk's and the
        reference's, where somebody has them. A live batch has been read already.
        """
        fixed = {
            "old_logprob_K": batch.chosen(batch.old_logprobs_BT),
            "ref_logprob_K": batch.chosen(batch.ref_logprobs_BT),
            "old_value_K": batch.chosen(batch.values_BT),
            "advantage_K": batch.chosen(targets["advantage_BT"]),
            "return_K": batch.chosen(targets["return_BT"]),
        }
        token_K = batch.chosen(batch.response_BT)

        def loss_of(found: Statistics, value_N: Tensor, at: slice) -> TokenLoss:
            return token_loss(
                Tokens(
                    logprob_K=found.logprob_N,
                    value_K=value_N,
                    entropy_K=found.entropy_N,
                    exact_kl_K=found.kl_N if exact_kl else None,
                    **{name: tensor[at] for name, tensor in fixed.items()},
                )
            )

        if batch.live is not None:
            whole = loss_of(*batch.live, slice(None))
            return _sums([whole], whole.loss_K.sum(), len(token_K))
        state_KD, ref_state_KD = states or self._states(batch, exact_kl)

        def chunk_loss(state_ND: Tensor, at: slice) -> TokenLoss:
            ref_logits_NV = None
            if ref_state_KD is not None:
                with torch.no_grad():
                    ref_logits_NV = self.reference.logits(ref_state_KD[at])
            return loss_of(self.statistics(state_ND, token_K[at], ref_logits_NV), self.values(state_ND), at)

        told: list[TokenLoss] = []
        loss = SumOverChunks.apply(chunk_loss, self.vocab_size, told, state_KD, *self.head_parameters())
        return _sums(told, loss, len(token_K))

    def _states(self, rows: Rows, exact_kl: bool) -> tuple[Tensor, Tensor | None]:
        state_KD = self.deciding_states(rows)
        with torch.no_grad():
            return state_KD, self.reference.deciding_states(rows) if exact_kl else None


def _in_place(told_5K: Tensor, mask_BT: Tensor) -> Evaluation:
    """Each number where its token stands."""
    out = told_5K.new_zeros(5, *mask_BT.shape)
    out[:, mask_BT] = told_5K.detach()
    return Evaluation(*out)


def _sums(told: Sequence[TokenLoss], loss: Tensor, tokens: int) -> LossSums:
    numbers, largest = told[0].numbers, told[0].largest
    return LossSums(
        loss=loss,
        tokens=tokens,
        numbers={name: torch.stack([part.numbers[name].sum() for part in told]).sum() for name in numbers},
        largest={name: torch.stack([part.largest[name].max() for part in told]).max() for name in largest},
    )
