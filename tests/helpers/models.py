"""Tiny models, tokenizers and policies with random weights; nothing is downloaded."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
)

from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.lora import LoraTeam
from cory.policies.lora_config import LoRAConfig
from cory.policies.table import TablePolicy

GPU = os.environ.get("CORY_TEST_DEVICE", "cuda")
"""The device of tests that are marked `gpu`; with `cpu` they are rehearsed (benchmarks/gpu.sh --dry)."""
CLASSES = {
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}
CONFIGS = {
    "gpt2": GPT2Config,
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "pythia": GPTNeoXConfig,
}
TIED = ("gpt2", "qwen2")
"""Architectures of `CONFIGS` whose head is made with the embedding's weights."""
STORIES = Path(__file__).parents[3] / "shared" / "data" / "stories260K"
"""A small pretrained Llama, where the shared data is at hand."""
TEXTS = ["a good film about a bad film", "this was the best of all bad films", "I liked it, you did not"]
END = "<|endoftext|>"
IDS = torch.tensor([[5, 3, 17, 8, 2, 11]])
"""Token ids of one row."""
MAX_RESPONSE = 7
"""Response positions of the tables made here."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of fewer than 300 tokens; `END` is BOS, EOS and pad."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXTS * 20, vocab_size=300, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, bos_token=END, eos_token=END, pad_token=END
    )


def gapped_tokenizer(gap: int) -> PreTrainedTokenizerFast:
    """`make_tokenizer` with one token more, an EOS called `<|end|>`, `gap` ids behind the others."""
    inner = make_tokenizer()
    spec, last = json.loads(inner.backend_tokenizer.to_str()), len(inner) + gap
    end = {"id": last, "content": "<|end|>", "special": True, "normalized": False}
    spec["added_tokens"].append(end | dict.fromkeys(("single_word", "lstrip", "rstrip"), False))
    spec["model"]["vocab"]["<|end|>"] = last
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)), eos_token="<|end|>", pad_token=END
    )


def make_model(kind: str, vocab_size: int, *, seed: int = 0, window: int = 64):
    """A GPT-2 (with dropout in its configuration) or a Llama of two layers."""
    torch.manual_seed(seed)
    if kind == "llama":
        shape = LlamaConfig(
            vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=window, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        return LlamaForCausalLM._from_config(shape, attn_implementation="eager")
    shape = GPT2Config(
        vocab_size=vocab_size, n_embd=32, n_head=4, n_layer=2, n_positions=window, bos_token_id=0,
        eos_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    return GPT2LMHeadModel._from_config(shape, attn_implementation="eager")


def save_backbone(kind: str, folder: Path) -> Path:
    """Write one of `CLASSES` and its tokenizer to a folder, as from_pretrained reads it.

    GPT-2 has tied weights, Conv1D, biases and dropout in its configuration, Llama grouped keys, Qwen2 biases.
    """
    config, cls = CLASSES[kind]
    tokenizer = make_tokenizer()
    shape = config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    if kind != "gpt2":
        shape.intermediate_size, shape.num_key_value_heads = 64, 2
    torch.manual_seed(0)
    cls(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_policy(kind: str, name: str = "llm_1", seed: int = 0):
    """A GPT-2, a Llama, or a table with two EOS ids and random logits."""
    if kind == "table":
        policy = TablePolicy(name, vocab_size=20, eos=frozenset({3, 5}), pad=0, max_response=MAX_RESPONSE)
        torch.manual_seed(seed)
        torch.nn.init.normal_(policy.logits_SV)
        return policy
    tokenizer = make_tokenizer()
    return CausalLMPolicy(name, make_model(kind, len(tokenizer), seed=seed), tokenizer)


def pair(kind: str):
    """A policy that has moved away from its reference."""
    policy, reference = make_policy(kind), make_policy(kind, "reference").requires_grad_(False)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    policy.set_reference(reference)
    return policy


def make_table_policy() -> TablePolicy:
    """A table of 20 tokens, EOS 3 and pad 0, and its reference; all weights are random."""
    policy, reference = (
        TablePolicy(name, vocab_size=20, eos=frozenset({3}), pad=0, max_response=MAX_RESPONSE)
        for name in ("llm_1", "reference")
    )
    generator = torch.Generator().manual_seed(0)
    for parameter in [*policy.parameters(), *reference.parameters()]:
        torch.nn.init.normal_(parameter, generator=generator)
    policy.set_reference(reference.requires_grad_(False))
    return policy


def make_causal_lm(
    kind: str, *, attention: str = "eager", wider: int = 0, shape=None, **options
) -> CausalLMPolicy:
    """A policy of one of `CONFIGS`, or of the pretrained `stories260K` (skips the test where it is missing).

    `wider`: ids the model has and the tokenizer lacks; `shape`: more of its configuration.
    """
    if kind == "stories260K":
        if not STORIES.exists():
            pytest.skip(f"no pretrained model at {STORIES}")
        policy = CausalLMPolicy.load("llm_1", STORIES, **options)
        policy.model.set_attn_implementation(attention)
        return policy
    tokenizer = make_tokenizer()
    config = CONFIGS[kind](
        vocab_size=len(tokenizer) + wider, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=0, initializer_range=0.3,
        tie_word_embeddings=kind in TIED, **(shape or {}),
    )  # fmt: skip
    if kind != "gpt2":
        config.intermediate_size = 64
    if kind in ("llama", "qwen2", "qwen3"):
        config.num_key_value_heads = 2
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return CausalLMPolicy("llm_1", model, tokenizer, **options)


def make_team(folder: Path, names=("llm_1", "llm_2"), **options) -> LoraTeam:
    """A LoRA team of rank 4 on the backbone in `folder`."""
    rank = {} if "config" in options else {"config": LoRAConfig(rank=4, alpha=8)}
    return LoraTeam.load(names, folder, **rank, **options)


@torch.no_grad()
def stir(policy, seed: int = 1) -> None:
    """Move all weights a little, as learning would."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter += 0.05 * noise.to(parameter.device)


def weights_of(policy) -> dict[str, Tensor]:
    """Copies of all weights of a policy by name."""
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def frozen_weights(team: LoraTeam) -> dict[str, Tensor]:
    """Copies of the backbone's weights by name."""
    return {name: p.detach().clone() for name, p in team.model.named_parameters() if not p.requires_grad}


@torch.no_grad()
def policy_logits(policy: CausalLMPolicy) -> Tensor:
    """Logits of a policy for `IDS`."""
    return policy.logits(policy.trunk(input_ids=IDS, use_cache=False).last_hidden_state[0])


@torch.no_grad()
def model_logits(model) -> Tensor:
    """Logits of a Hugging Face model for `IDS`."""
    return model.eval()(IDS).logits[0]


class GivenLogits:
    """A decoder that returns given logits: one tensor [B, V] per call."""

    def __init__(self, logits_TBV: Iterable[Tensor]) -> None:
        self._logits = iter(logits_TBV)

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        return next(self._logits)

    def step(self, token_B: Tensor) -> Tensor:
        return next(self._logits)
