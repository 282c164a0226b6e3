"""Any Hugging Face causal LM, its class unmodified, with a linear value head on the last hidden layer.

Knows no games.

Shapes: B rows, P prompt tokens, T response tokens, L tokens of prompt + response, K chosen tokens, D width,
V vocabulary.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agents.batch import Rows
from agents.policies import head
from agents.policies.base import Policy
from agents.policies.decoding import CachedDecoder
from agents.policies.lean import add_biases_after, fuse_activations
from agents.policies.loading import eos_ids, head_shape, load_model, pad_id
from agents.policies.narrow import Wanted, narrowed, token_wise
from agents.policies.trunk import (
    ACTIVATIONS,
    LONG,
    Precision,
    attending,
    autocast,
    check_precision,
    recomputable_layers,
    recomputing,
    remembered_casts,
    resolved,
)
from agents.sampling import Decoder, PenalisedDecoder, Sampled, dropout_from
from agents.softmax import Statistics

VALUE_HEAD = "value_head.safetensors"
RELEASED_PENALTY = 1.1
"""Repetition penalty of the released scripts."""


class CausalLMPolicy(Policy):
    """Full fine-tuning of a causal LM. Dropout is off: what is scored is what was sampled."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 1.0,
        value_head: nn.Linear | None = None,
        gradient_checkpointing: bool = False,
        precision: Precision = "auto",
    ) -> None:
        """`gradient_checkpointing` recomputes layers in the backward pass instead of keeping activations.

        `precision` is that of matrix products (see `precision` below); weights are float32 in any case.
        """
        super().__init__()
        check_precision(precision)
        self.name, self.temperature = name, temperature
        self.model = (model if getattr(model, "is_quantized", False) else model.float()).eval()
        self.tokenizer = tokenizer
        rows, width = head_shape(model)
        self.value_head = value_head or zero_value_head(width)
        self.vocab_size = min(len(tokenizer), rows)
        self.eos = eos_ids(model, tokenizer, vocab_size=self.vocab_size)
        self.pad = pad_id(tokenizer, vocab_size=self.vocab_size, eos=self.eos)
        self.window = getattr(model.config, "max_position_embeddings", None)
        fuse_activations(model)
        add_biases_after(model)
        self.token_wise = token_wise(model)
        if gradient_checkpointing:
            recomputable_layers(model)
        self.gradient_checkpointing = gradient_checkpointing
        self._precision = precision

    @classmethod
    def load(cls, name: str, path: str | Path, *, device: str = "cpu", **options: Any) -> Self:
        """From a local folder or a hub name; with its value head where the folder holds one.

        `options` are the constructor's.
        """
        model, tokenizer = load_model(path, device=device)
        policy = cls(name, model, tokenizer, **options)
        if (Path(path) / VALUE_HEAD).exists():
            policy.value_head.load_state_dict(load_file(Path(path) / VALUE_HEAD))
        return policy.to(device)

    @property
    def precision(self) -> Literal["float32", "bfloat16"]:
        """What matrix products are computed in; weights, log-softmax and the value head are float32."""
        return resolved(self._precision, self.device)

    @property
    def tolerance(self) -> float:  # type: ignore[override]
        """Nats by which sampler and learner may differ on a token: whatever they like if `released`.

        In float32 a sharp model rounds to 1.5e-4 (pocket arithmetic). Bfloat16 keeps 8 bits: 0.12 was the
        most on 6,400 tokens of a small pretrained Llama, and logits of larger models are larger.
        """
        if self.mismatch == "released":
            return math.inf
        return 1.0 if self.precision == "bfloat16" else 1e-3

    def train(self, mode: bool = True) -> Self:
        """Leaves the model as it is: a wrapper that calls this must not switch dropout on."""
        super().train(mode)
        self.model.eval()
        return self

    def save(self, folder: str | Path, *, value_head: bool = True) -> None:
        """In plain `from_pretrained` layout, the value head beside it; float32."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if value_head:
            save_file(self.value_head.state_dict(), Path(folder) / VALUE_HEAD)

    def restore(self, folder: str | Path) -> None:
        """Take the weights and the value head that `save` wrote, in place."""
        saved, _ = load_model(folder)  # by transformers: names in the file may not be those in the model
        try:
            self.model.load_state_dict(saved.state_dict())
        except RuntimeError as error:
            raise ValueError(
                f"{folder} was not saved by policy {self.name!r}: it holds a {type(saved).__name__} of other "
                f"shape than its {type(self.model).__name__}; name the folder this policy was saved to"
            ) from error
        self.value_head.load_state_dict(load_file(Path(folder) / VALUE_HEAD))

    def reading(self) -> AbstractContextManager[Any]:
        """What must hold while the model is read, and again while its layers are recomputed."""
        return autocast(self._precision, self.device)

    def trunk(
        self,
        *,
        wanted: Wanted | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        **inputs: Any,
    ) -> Any:
        """The transformer without its head; training, scoring and decoding all read through here.

        States of tokens that are not `wanted` mean nothing. `around` must hold too while it is read.
        """

        @contextmanager
        def reading() -> Iterator[None]:
            narrow = narrowed(self.token_wise, wanted) if wanted is not None else nullcontext()
            with self.reading(), around(), narrow, attending(self.model, inputs["input_ids"].shape[1]):
                yield

        with reading():
            if self.gradient_checkpointing and torch.is_grad_enabled():
                with recomputing(self.model, reading):
                    return self.model.base_model(**inputs)
            return self.model.base_model(**inputs)

    def rows_at_once(self, length: int, *, learning: bool = True) -> int:
        layers = self.model.config.get_text_config().num_hidden_layers
        if not learning:
            layers = 1 + layers // 17  # one, of 34 numbers a channel, and a cache of 2 of each
        most = ACTIVATIONS.get(self.device.type, ACTIVATIONS["cpu"])
        return max(1, most // (length * self.width_at(length) * layers))

    def width_at(self, length: int) -> int:
        """Channels, and what eager attention keeps beside them: some 3 numbers for each pair of tokens and
        head, where a token is counted with 34 for each channel; of `LONG` rows SDPA keeps no pairs."""
        config = self.model.config.get_text_config()
        eager = config._attn_implementation == "eager"
        return int(config.hidden_size + eager * config.num_attention_heads * min(length, LONG) // 12)

    def deciding_states(self, rows: Rows) -> Tensor:
        return self.states_of(rows, Wanted.of(rows.tokens(), rows.deciding()))

    def states_of(self, rows: Rows, wanted: Wanted, **around: Any) -> Tensor:
        """Hidden states [N, D] of the tokens that are asked for; `around` is for `trunk`."""
        hidden_BLD = self.trunk(
            wanted=wanted, input_ids=rows.read(), use_cache=False, **around
        ).last_hidden_state
        return hidden_BLD.flatten(0, 1)[wanted.asked_N]

    def logits(self, state_KD: Tensor) -> Tensor:
        with self.reading():
            logits_KV = head.read(self.model.get_output_embeddings(), state_KD)
        if logits_KV.shape[1] > self.vocab_size:  # a slice has a copy for its gradient
            logits_KV = logits_KV[:, : self.vocab_size]
        return logits_KV if self.temperature == 1.0 else logits_KV / self.temperature

    def statistics(
        self, state_KD: Tensor, token_K: Tensor, ref_logits_KV: Tensor | None = None, **options: Any
    ) -> Statistics:
        output = self.model.get_output_embeddings()
        if not head.plain(output):
            return super().statistics(state_KD, token_K, ref_logits_KV, **options)
        sizes = {"vocab_size": self.vocab_size, "temperature": self.temperature}
        with self.reading():
            return head.statistics(output, state_KD, token_K, ref_logits_KV, **sizes, **options)

    def values(self, state_KD: Tensor) -> Tensor:
        return self.value_head(state_KD.float()).squeeze(-1)

    def head_parameters(self) -> Sequence[nn.Parameter]:
        return [*self.model.get_output_embeddings().parameters(), *self.value_head.parameters()]

    def value_parameters(self) -> Sequence[nn.Parameter]:
        """Those of the value head, which may learn at a rate of their own."""
        return list(self.value_head.parameters())

    def decoder(self) -> Decoder:
        decoder = CachedDecoder(self.trunk, self.logits, self.model.config)
        return decoder if self.mismatch == "none" else PenalisedDecoder(decoder, RELEASED_PENALTY)

    def sample(
        self, prompt_BP: Tensor, prompt_length_B: Tensor, *, uniforms_BT: Tensor, **options: Any
    ) -> Sampled:
        """As every policy samples, but for `mismatch`. Weights are cast once per call, not once per token."""
        with ExitStack() as around:
            around.enter_context(self.reading())
            if self.precision == "bfloat16":
                around.enter_context(remembered_casts(self.model))
            if self.mismatch == "released":
                warnings.warn(
                    "sampling.mismatch is 'released': tokens are sampled with repetition penalty and dropout "
                    "and scored without, so ratios and KL are off from the first step; for comparison only",
                    stacklevel=2,
                )
                around.enter_context(dropout_from(uniforms_BT, self.model, self.device))
            return super().sample(prompt_BP, prompt_length_B, uniforms_BT=uniforms_BT, **options)


def check_same_tokenizer(policies: Sequence[CausalLMPolicy]) -> None:
    """Refuse policies that would read each other's token ids as other text, or end at other tokens."""
    first, *others = policies
    ids = first.tokenizer.get_vocab()
    for other in others:
        theirs = other.tokenizer.get_vocab()
        pair = f"policies {first.name!r} and {other.name!r}"
        if differing := sorted(set(ids.items()) ^ set(theirs.items()), key=lambda item: item[1]):
            token, at = differing[0]
            raise ValueError(
                f"{pair} have different tokenizers: token {token!r} has id {at} in one of them only "
                f"({len(ids)} and {len(theirs)} tokens); token ids go from seat to seat, so start all "
                "policies from models with one tokenizer"
            )
        for what, ours_is, theirs_is in (
            ("EOS ids", sorted(first.eos), sorted(other.eos)),
            ("pad ids", first.pad, other.pad),
            ("vocabularies", first.vocab_size, other.vocab_size),
        ):
            if ours_is != theirs_is:
                raise ValueError(
                    f"{pair} have different {what}, {ours_is} and {theirs_is}; make the generation configs "
                    "and tokenizers of their models agree"
                )


def zero_value_head(width: int) -> nn.Linear:
    """A value head that expects 0 until it has learned otherwise."""
    head = nn.Linear(width, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
