"""A Hugging Face causal LM with a linear value head on its last hidden states.

The model's classes and modules stay what was handed in. Knows no games.

Shapes: B rows, P prompt tokens, L tokens of prompt + response, K chosen tokens, D width, V vocabulary.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cory.batch import Rows
from cory.distributed.sharding import Shards, load_state, whole_state
from cory.generation.sampling import Decoder
from cory.generation.strategies import dropout_from
from cory.policies import conformance
from cory.policies.base import Policy
from cory.policies.compiled_blocks import CompiledBlocks, missing
from cory.policies.gradient_checkpointing import layers_of, recomputable_layers, recomputing
from cory.policies.head import Head
from cory.policies.kv_cache import CachedDecoder, UncachedDecoder
from cory.policies.loading import eos_ids, file_of, head_shape, id_count, load_model, load_value_head
from cory.policies.lora_config import VALUE_HEAD
from cory.policies.precision import (
    Precision,
    autocast,
    cast_linear_weights,
    check_precision,
    dither_bfloat16,
    product_dtype,
    resolved,
    store_frozen,
)
from cory.runtime import memory


class CausalLMPolicy(Policy):
    """Full fine-tuning of a causal LM. Dropout is off: the scored distribution is the sampled one."""

    _adapters: tuple[str, ...] = ()
    """Adapters that are active when this policy acts."""

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
        """`precision` is that of matrix products; trained weights are float32 in any case."""
        super().__init__()
        check_precision(precision)
        self.name, self.temperature = name, temperature
        self.model = self._own_format(model).eval()
        self.model.config.return_dict = True
        self.tokenizer = tokenizer
        rows, width = head_shape(model)
        self.value_head = value_head or nn.Linear(width, 1, dtype=torch.float32)
        if value_head is None:  # it predicts 0 before training
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        self.vocab_size = min(id_count(tokenizer), rows)
        self.eos = eos_ids(model, tokenizer, vocab_size=self.vocab_size)
        pad = tokenizer.pad_token_id  # told from an EOS that was chosen by lengths, never by ids
        self.pad = pad if pad is not None and pad < self.vocab_size else min(self.eos)
        self.head: Head
        """How last hidden states become logits."""
        self.caches = True
        """Whether responses are decoded with a KV cache; otherwise every token from its whole prefix."""
        if gradient_checkpointing:
            recomputable_layers(model)
        self.gradient_checkpointing = gradient_checkpointing
        self._precision = precision
        self.compiled: CompiledBlocks | None = None
        conformance.fit(self)

    def _own_format(self, model: Any) -> Any:
        """The model with weights in float32, but for those in 4 bits."""
        return model if getattr(model, "is_quantized", False) else model.float()

    def begin_training(self) -> None:
        """Prepare a model, as loaded, for updates: see `dither_bfloat16`."""
        if self.precision == "bfloat16":
            dither_bfloat16(self.model)

    def freeze(self) -> Self:
        """Freeze all weights for good; linear layers are stored in the type of the products."""
        store_frozen(self.model, product_dtype(self._precision, self.device))
        return self.requires_grad_(False)

    @classmethod
    def load(
        cls, name: str, path: str | Path, *, device: str = "cpu", merge: bool = True, **options: Any
    ) -> Self:
        """From a local folder or a hub name; with its value head where it has one there.

        `merge` adds an adapter to the weights of its base model, for training; what merely plays keeps it
        beside them, as it was trained: products in bfloat16 would round away much of it. `options` are the
        constructor's.
        """
        model, tokenizer = load_model(path, device=device, merge=merge)
        policy = cls(name, model, tokenizer, **options)
        if (head := file_of(path, VALUE_HEAD)) is not None:
            load_value_head(policy.value_head, head)
        return policy.to(device)

    @property
    def precision(self) -> Literal["float32", "bfloat16"]:  # type: ignore[override]
        """Precision of matrix products; weights, log-softmax and the value head are float32."""
        return resolved(self._precision, self.device)

    @property
    def tolerance(self) -> float:  # type: ignore[override]
        """Difference in nats between sampler and learner that few tokens may exceed, by the precision."""
        return 1.0 if self.precision == "bfloat16" else 1e-3

    def train(self, mode: bool = True) -> Self:
        """Set the mode but keep the model in eval mode: wrappers must not enable dropout."""
        super().train(mode)
        self.model.eval()
        return self

    def save(self, folder: str | Path) -> None:
        """Write the plain `from_pretrained` layout in float32, with the value head beside it."""
        self.model.save_pretrained(folder, state_dict=whole_state(self.model) if self.is_sharded else None)
        self.tokenizer.save_pretrained(folder)
        save_file(self.value_head.state_dict(), Path(folder) / VALUE_HEAD)

    def restore(self, folder: str | Path) -> None:
        """Load the weights and the value head that `save` wrote, in place."""
        saved, _ = load_model(folder)  # by transformers: names in the file may not be those in the model
        try:
            load_state(self.model, saved.state_dict())
        except RuntimeError as error:
            raise ValueError(
                f"{folder} was not saved by policy {self.name!r}: it holds a {type(saved).__name__} of other "
                f"shape than its {type(self.model).__name__}; name the folder this policy was saved to"
            ) from error
        load_value_head(self.value_head, Path(folder) / VALUE_HEAD)

    def never_sharded(self) -> list[nn.Parameter]:
        """Parameters inside the layers that stay whole on every rank."""
        return []

    def forward_context(self) -> AbstractContextManager[Any]:
        """Context of a forward pass: the precision of its products."""
        return autocast(self._precision, self.device)

    def compile_blocks(self) -> None:
        """Compile the block that the transformer repeats, for learning and scoring (`CompiledBlocks`).

        ValueError where the machine has no compiler, for a model that marks no such blocks, and with gradient
        checkpointing.
        """
        if self.gradient_checkpointing:
            raise ValueError(
                "policy.compile yes does not go with policy.gradient_checkpointing; leave one of them out"
            )
        if (lacks := missing(self.device)) is not None:
            raise ValueError(f"policy.compile yes needs {lacks}, which this machine lacks; set it to no")
        self.compiled = CompiledBlocks(self.model)

    def trunk(self, **inputs: Any) -> Any:
        """The transformer without its head, for training, scoring and decoding."""
        if self.compiled is None:
            return self._pass(**inputs)
        with self.compiled.used_for(inputs, self._pass, self._adapters):
            return self._pass(**inputs)

    def _pass(self, **inputs: Any) -> Any:
        with self.forward_context():
            if self.gradient_checkpointing and torch.is_grad_enabled():
                with recomputing(self.model, self.forward_context):
                    return self.model.base_model(**inputs)
            return self.model.base_model(**inputs)

    def max_rows(self, length: int, *, learning: bool = True) -> int:
        return max(1, self.memory.activations // self.row_bytes(length, learning=learning))

    def row_bytes(self, length: int, *, learning: bool = True) -> int:
        """Bytes a row of `length` tokens takes at the peak of a pass (`cory.runtime.memory.row_bytes`)."""
        return memory.row_bytes(
            memory.Architecture.of(self.model.config),
            length,
            learning=learning,
            size=2 if self.precision == "bfloat16" else 4,
            checkpointing=self.gradient_checkpointing,
        )

    def hidden_states(self, rows: Rows) -> Tensor:
        self._check_window(rows.max_length)
        out = self.trunk(input_ids=rows.input_ids(), use_cache=False)
        states_KD: Tensor = out.last_hidden_state.flatten(0, 1)[rows.predicting_positions()]
        return states_KD

    def logits(self, state_KD: Tensor) -> Tensor:
        with self.forward_context():
            logits_KV: Tensor = self.head.transform(self.head_module(state_KD))
        if logits_KV.shape[1] > self.vocab_size:  # a slice has a copy for its gradient
            logits_KV = logits_KV[:, : self.vocab_size]
        return logits_KV if self.temperature == 1.0 else logits_KV / self.temperature

    @property
    def head_module(self) -> nn.Module:
        """The module that makes logits of last hidden states; `head.transform` follows."""
        module: nn.Module = self.model.get_submodule(self.head.module)
        return module

    def values(self, state_KD: Tensor) -> Tensor:
        values_K: Tensor = self.value_head(state_KD.float()).squeeze(-1)
        return values_K

    def head_parameters(self) -> Sequence[nn.Parameter]:
        return [*self.head_module.parameters(), *self.value_head.parameters()]

    def value_parameters(self) -> Sequence[nn.Parameter]:
        """Parameters of the value head, which may have a learning rate of their own."""
        return list(self.value_head.parameters())

    def decoder(self) -> Decoder:
        fixed = self.device.type != "cpu"
        return (
            CachedDecoder(self.trunk, self.logits, self.model.base_model, window=self.window, fixed=fixed)
            if self.caches
            else UncachedDecoder(self.trunk, self.logits)
        )

    @contextmanager
    def sampling_context(self, uniforms_BT: Tensor, *, released: bool) -> Iterator[None]:
        """Inside, weights are cast once; dropout is on if `released`."""
        with ExitStack() as contexts:
            contexts.enter_context(self.forward_context())
            if self.precision == "bfloat16":
                contexts.enter_context(cast_linear_weights(self.model, torch.bfloat16))
            if released:
                warnings.warn(
                    "policy.mismatch is 'released': tokens are sampled with repetition penalty and dropout "
                    "and scored without, so ratios and KL are off from the first step; for comparison only",
                    stacklevel=4,  # the caller of `sample`
                )
                contexts.enter_context(dropout_from(uniforms_BT, self.model, self.device))
            yield


def shard_policies(policies: Iterable[Policy]) -> None:
    """Share all layers out among the ranks; ValueError for what is no language model with known layers."""
    shards: dict[int, Shards] = {}
    for policy in policies:
        if not isinstance(policy, CausalLMPolicy):
            raise ValueError(
                f"--shard is for language models, and policy {policy.name!r} is none; leave it out"
            )
        if id(policy.model) not in shards:
            if not (layers := layers_of(policy.model)):
                raise ValueError(
                    f"{type(policy.model).__name__} has no layers that transformers marks; leave out --shard"
                )
            shards[id(policy.model)] = Shards(policy.model.base_model, layers, whole=policy.never_sharded())
        policy.shards = shards[id(policy.model)]


def check_same_tokenizer(policies: Iterable[object]) -> None:
    """Raise ValueError for language models whose tokenizers, EOS ids, pad ids or vocabularies differ.

    Other policies, and players, have none.
    """
    models = [policy for policy in policies if isinstance(policy, CausalLMPolicy)]
    if len(models) < 2:
        return
    first, *others = models
    ids = first.tokenizer.get_vocab()
    for other in others:
        theirs = other.tokenizer.get_vocab()
        pair = f"policies {first.name!r} and {other.name!r}"
        if differing := sorted(set(ids.items()) ^ set(theirs.items()), key=lambda item: item[1]):
            token, at = differing[0]
            raise ValueError(
                f"{pair} have different tokenizers: token {token!r} has id {at} in one of them only "
                f"({len(ids)} and {len(theirs)} tokens); token ids pass from seat to seat, so start all "
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
