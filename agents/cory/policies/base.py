"""The contract of every policy: hidden states, a language-model head, a value head, a decoder.

Shapes: B rows, P prompt tokens, T response tokens, K chosen tokens, D width, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from cory.batch import Batch, Rows, stack
from cory.distributed.sharding import Shards
from cory.functional import kl
from cory.generation import SamplingStrategy
from cory.generation.acting import Turn, finish
from cory.generation.sampling import Decoder, Sampled, sample
from cory.generation.strategies import with_strategy
from cory.policies.chunked_loss import KLLoss, SumOverChunks
from cory.runtime.memory import BYTES_PER_LOGIT, Attempts, MemoryBudget, pass_bytes
from cory.token_loss import LossFunction, TokenLoss


class LossSums(NamedTuple):
    """Sums over the chosen tokens of a batch; divide by all `tokens`, micro-batches and ranks, for means."""

    loss: Tensor
    """Carries the gradient."""
    tokens: int
    metrics: dict[str, Tensor]
    maxima: dict[str, Tensor]
    """Largest values over the tokens, not sums."""


@contextmanager
def unsharded(policies: Iterable["Policy"]) -> Iterator[None]:
    """`Policy.unsharded` of policies and their references."""
    with ExitStack() as contexts:
        for policy in policies:
            for model in (policy, *policy._reference):
                contexts.enter_context(model.unsharded())
        yield


class Policy(nn.Module):
    """A language model that learns.

    Subclasses implement `hidden_states`, `logits`, `values`, `head_parameters`, `value_parameters`,
    `decoder`, `save` and `restore`. The sampled distribution is the scored distribution: temperature applies
    to both and nothing else lies between them.
    """

    name: str
    eos: frozenset[int]
    pad: int
    vocab_size: int
    temperature: float = 1.0
    window: int | None = None
    """Longest prompt + response in tokens; None = unlimited."""
    precision: str = "float32"
    """Precision of matrix products."""
    mismatch: Literal["none", "released"] = "none"
    """`released`: sample with repetition penalty 1.1 and dropout but score without, as the released code
    does. For comparison only."""
    tolerance: float = 1e-4
    """Difference in nats between sampler and learner before any update that few tokens may exceed."""
    version: int = 0
    """Optimiser steps taken: identifies the weights a rollout was played with."""
    budget: MemoryBudget | None = None
    """Memory for passes and logits, that of the run; None = that of `memory` auto."""
    shards: Shards | None = None
    """Its layers, where ranks share them out; policies on one model share this too."""

    def __init__(self) -> None:
        super().__init__()
        self._reference: tuple[Policy, ...] = ()
        self._planned: tuple[object, int, tuple[int, ...]] = None, 0, ()
        """Of `act`: what it was sampled for, how many ids of the response were given, and the response."""

    @property
    def reference(self) -> "Policy":
        """The frozen policy this one started from; it is no submodule."""
        if not self._reference:
            raise ValueError(
                f"policy {self.name!r} has no reference; call policy.set_reference before computing KL"
            )
        return self._reference[0]

    def set_reference(self, policy: "Policy") -> None:
        """Measure KL against `policy` from now on."""
        self._reference = (policy,)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @property
    def memory(self) -> MemoryBudget:
        """Memory that passes may take."""
        if self.budget is None:
            self.budget = MemoryBudget.of(pass_bytes("auto", self.device))
        return self.budget

    def max_rows(self, length: int, *, learning: bool = True) -> int:
        """Rows of `length` tokens that fit one pass.

        A learning pass keeps the activations of all layers, others those of one layer and a KV cache.
        """
        return 1 << 30

    def max_logit_rows(self) -> int:
        """Tokens whose logits may be held at once; at least 1."""
        return max(1, self.memory.logits // (BYTES_PER_LOGIT * self.vocab_size))

    def hidden_states(self, rows: Rows) -> Tensor:
        """Hidden states [K, D] that predict each chosen token, in the order of `rows.mask_BT`."""
        raise NotImplementedError

    def logits(self, state_KD: Tensor) -> Tensor:
        """Next-token logits [K, V] with temperature applied, in the precision of the products.

        A fresh tensor: the caller may overwrite it.
        """
        raise NotImplementedError

    def values(self, state_KD: Tensor) -> Tensor:
        """Expected payoff still to come [K]."""
        raise NotImplementedError

    def head_parameters(self) -> Sequence[nn.Parameter]:
        """Trainable parameters that `logits` and `values` use."""
        raise NotImplementedError

    def value_parameters(self) -> Sequence[nn.Parameter]:
        """Parameters that only `values` uses."""
        raise NotImplementedError

    def decoder(self) -> Decoder:
        """A fresh decoder for `sample`."""
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Write everything this policy is, in a form that needs nothing else."""
        raise NotImplementedError

    def save_merged(self, folder: str | Path) -> None:
        """Write one whole model, for policies that otherwise save a part of one."""
        self.save(folder)

    def restore(self, folder: str | Path) -> None:
        """Load what `save` wrote, in place: optimisers keep their parameters."""
        raise NotImplementedError

    def compile_blocks(self) -> None:
        """Compile what learning and scoring repeat; ValueError for a policy that is no language model."""
        raise ValueError(
            f"policy.compile yes is for language models, and policy {self.name!r} is none; leave it out"
        )

    def critic_states(self, rows: Rows, max_length: int) -> Tensor:
        """Inputs of a central critic for each chosen token [K, D], in the order of `rows.mask_BT`.

        `max_length` is the largest prompt + response in tokens that `rows` may have.
        """
        return self.hidden_states(rows)

    def sample(
        self,
        prompt_BP: Tensor,
        prompt_length_B: Tensor,
        *,
        uniforms_BT: Tensor,
        caps_B: Tensor,
        strategy: SamplingStrategy | None = None,
    ) -> Sampled:
        """Respond to each prompt (`cory.generation.sampling.sample`).

        A `strategy` is for evaluation; None samples as in training: by `mismatch`. If an accelerator's memory
        runs out, all responses are sampled again in smaller passes, with the same tokens.
        """
        self._check_window(int((prompt_length_B + caps_B).max()))
        columns = int(prompt_length_B.max() + caps_B.max())  # of a KV cache: its rows end in the same column
        uniforms = uniforms_BT.float()  # as the probabilities are; not every accelerator has float64
        inputs = [tensor.to(self.device) for tensor in (prompt_BP, prompt_length_B, uniforms, caps_B)]
        released = strategy is None and self.mismatch == "released"
        attempts = Attempts("while sampling", budget=self.memory, device=self.device)
        with self.unsharded():
            while attempts.should_retry():
                with attempts, self.sampling_context(uniforms_BT, released=released):
                    size = min(self.max_logit_rows(), self.max_rows(columns, learning=False))
                    sampled = stack(Sampled, [
                        sample(
                            with_strategy(self.decoder(), "released" if released else strategy or "own"),
                            prompt_NP,
                            length_N,
                            uniforms_BT=uniforms_NT,
                            caps_B=caps_N,
                            eos=self.eos,
                        )
                        for prompt_NP, length_N, uniforms_NT, caps_N in zip(
                            *(tensor.split(size) for tensor in inputs), strict=True
                        )
                    ])  # fmt: skip
        return sampled

    def sampling_context(self, uniforms_BT: Tensor, *, released: bool) -> AbstractContextManager[None]:
        """What holds while responses are sampled by these random numbers; `released`: as `mismatch` says."""
        return nullcontext()

    def act(self, observation: Any, info: Mapping[str, Any], *, seed: int = 0) -> int:
        """The token id to play next in the PettingZoo AEC env, for `env.last()`'s observation and info.

        Pad once the response has ended. The draw is a function of `seed` and of the ids. The response is
        sampled whole at its first token, and again where the env shows other ids or a weight has changed.
        """
        turn = Turn.of(observation, info)
        self._check_window(len(turn.prompt) + turn.cap)
        begun = len(turn.response)
        if begun >= turn.cap or (begun and turn.response[-1] in self.eos):
            return self.pad
        key = (turn.prompt, turn.cap, seed, self.version, self.fingerprint())
        planned, given, ids = self._planned
        if planned != key or begun < given or ids[:begun] != turn.response:
            rest = finish(self.decoder(), turn, eos=self.eos, device=self.device, seed=seed)
            ids = (*turn.response, *rest)
            self._planned = key, begun, ids
        return ids[begun]

    def _check_window(self, needed: int) -> None:
        if self.window is not None and needed > self.window:
            raise ValueError(
                f"a prompt and its response may reach {needed} tokens; policy {self.name!r} has a window of "
                f"{self.window}: lower the response cap, shorten the query or take a model with a larger one"
            )

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds a part of its weights."""
        return self.shards is not None

    def unsharded(self) -> AbstractContextManager[None]:
        """A context in which this rank holds all weights; all ranks must enter it together."""
        return nullcontext() if self.shards is None else self.shards.gathered()

    def joined(self, policies: Sequence["Policy"]) -> AbstractContextManager[None]:
        """A context in which the adapters of `policies` act with its own; here there are none."""
        return nullcontext()

    def fingerprint(self) -> tuple[tuple[int, int, bool], ...]:
        """A value that changes when a weight is written, replaced, frozen or unfrozen; reads no weights."""
        return tuple((p.data_ptr(), p._version, p.requires_grad) for p in self.parameters())

    def equals_reference(self) -> bool:
        """Whether its distribution is the reference's because the weights are; reads all of them."""
        return self.equals(self.reference)

    def equals(self, other: "Policy") -> bool:
        """Whether its distribution is that of another policy because the weights are."""
        with unsharded([self]):
            weights, theirs = self.distribution_weights(), other.distribution_weights()
            return (
                self.temperature == other.temperature
                and weights.keys() == theirs.keys()
                and all(w.dtype == theirs[name].dtype for name, w in weights.items())
                and all(torch.equal(w, theirs[name]) for name, w in weights.items())
            )

    def distribution_weights(self) -> dict[str, Tensor]:
        """Parameters and buffers that the distribution depends on, by name."""
        of_values = {id(weight) for weight in self.value_parameters()}
        named = chain(self.named_parameters(), self.named_buffers())
        return {name: weight for name, weight in named if id(weight) not in of_values}

    def forward(
        self,
        batch: Batch,
        targets: Mapping[str, Tensor],
        token_loss: LossFunction,
        *,
        kl_loss: KLLoss | None = None,
    ) -> LossSums:
        """One pass of the trunk; head, value head and `token_loss` chunk by chunk.

        `targets` holds advantage_BT and return_BT; `kl_loss` adds a KL term to the loss. The exact KL needs a
        pass of the reference. No logits outlive their chunk and nothing is computed twice: the gradient of a
        chunk is taken while its logits are at hand (`SumOverChunks`).
        """
        recorded = {
            "old_logprob_K": batch.chosen(batch.old_logprobs_BT),
            "ref_logprob_K": batch.chosen(batch.ref_logprobs_BT),
            "old_value_K": batch.chosen(batch.values_BT),
            "advantage_K": batch.chosen(targets["advantage_BT"]),
            "return_K": batch.chosen(targets["return_BT"]),
        }
        token_K, state_KD, ref_state_KD = batch.chosen(batch.response_BT), self.hidden_states(batch), None
        if kl_loss is not None and kl_loss.kind not in kl.SAMPLED:
            with torch.no_grad():
                ref_state_KD = self.reference.hidden_states(batch)
        parts: list[TokenLoss] = []
        given = (self, token_loss, kl_loss, token_K, recorded, ref_state_KD, parts)
        loss = SumOverChunks.apply(*given, state_KD, *self.head_parameters())  # type: ignore[no-untyped-call]
        first = parts[0]
        metrics = {n: torch.stack([part.metrics[n].sum() for part in parts]).sum() for n in first.metrics}
        maxima = {n: torch.stack([part.maxima[n].max() for part in parts]).max() for n in first.maxima}
        return LossSums(loss=loss, tokens=len(token_K), metrics=metrics, maxima=maxima)
