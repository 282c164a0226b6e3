"""Tiny models made on the spot: random weights, a tokenizer of its own, nothing from outside."""

from pathlib import Path

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from cory.learner.learner import Learner

CLASSES = {
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}
TEXTS = ["a good film about a bad film", "this was the best of all bad films", "I liked it, you did not"]
END = "<|endoftext|>"


def make_tokenizer() -> PreTrainedTokenizerFast:
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXTS * 20, vocab_size=300, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, bos_token=END, eos_token=END, pad_token=END
    )


def make_model(kind: str, vocab_size: int, *, seed: int = 0, window: int = 64):
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


def gradients_used(learner: Learner) -> list[dict[str, torch.Tensor]]:
    """Filled with the gradients, by name, of every optimiser step to come."""
    used: list[dict[str, torch.Tensor]] = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: used.append(
            {name: p.grad.clone() for name, p in learner.policy.named_parameters() if p.grad is not None}
        )
    )
    return used


@pytest.fixture(autouse=True)
def library_of_products():
    """Runs choose one for their process: here each test begins with torch's own choice."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A GPT-2 with tied weights and dropout in its configuration, as from_pretrained finds it."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model("gpt2", len(tokenizer)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=tuple(CLASSES))
def backbone(request, tmp_path_factory) -> Path:
    """GPT-2 (tied, Conv1D, biases, dropout in its configuration), Llama (grouped keys), Qwen2 (biases)."""
    config, cls = CLASSES[request.param]
    tokenizer = make_tokenizer()
    shape = config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    if request.param != "gpt2":
        shape.intermediate_size, shape.num_key_value_heads = 64, 2
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    cls(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
