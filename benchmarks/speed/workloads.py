"""Works to be timed: model shapes with random weights, and a game of the paper's lengths around them.

Shapes: B games, Q query tokens, T response tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer as Words
from tokenizers import models, pre_tokenizers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerFast

from cory.pocket import lm_path
from cory_env.types import Query, Response
from cory_env.tokenizer import Tokenizer

WORDING = 'I can make this sentence " {query} {responses} " more positive : {query}'
"""What an observer reads, as in the paper: ten tokens, the query twice, the responses before it."""
GPT2_VOCABULARY = 50_257
PASS = 64
"""Rows that the others learn from at a time: with whole logits, more do not fit beside each other."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One iteration of CORY: every seat answers every query, every policy learns for four epochs."""

    architecture: Literal["gpt2", "llama"] = "gpt2"
    embedded: str = ""
    """An embedded model (`pocket`) instead of a shape."""
    layers: int = 4
    width: int = 256
    heads: int = 4
    vocab_size: int = GPT2_VOCABULARY
    batch: int = 64
    response: int = 10
    seats: int = 2
    query: tuple[int, int] = (2, 7)
    """Fewest and most tokens of a query."""

    def shape(self) -> PretrainedConfig:
        """The configuration of the model, without dropout."""
        from transformers import AutoConfig, GPT2Config, LlamaConfig

        if self.embedded:
            shape = AutoConfig.from_pretrained(lm_path(self.embedded))
            shape.dtype = torch.float32
            return shape
        longest = 64 + self.seats * (self.response + 2 * self.query[1])
        if self.architecture == "gpt2":
            return GPT2Config(
                vocab_size=self.vocab_size,
                n_positions=max(1024, longest),
                n_embd=self.width,
                n_layer=self.layers,
                n_head=self.heads,
                **dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0),
                **dict.fromkeys(("bos_token_id", "eos_token_id"), 0),
            )
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.width,
            intermediate_size=8 * self.width // 3 // 64 * 64,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=max(1024, longest),
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
        )

    def model(self) -> Any:
        """Random weights, the same every time, in the shape of an embedded model too."""
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(self.shape())

    def write(self, folder: Path) -> Path:
        """A model folder with a tokenizer of words, for whoever loads models from folders."""
        self.model().save_pretrained(folder)
        tokenizer(self.vocab_size).save_pretrained(folder)
        return folder


def tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """As many words as the model has ids; those of the observer's wording among them."""
    named = ["<eos>", *dict.fromkeys(WORDING.replace("{query}", "").replace("{responses}", "").split())]
    words = {word: i for i, word in enumerate(named)}
    words |= {f"w{i}": i for i in range(len(named), vocab_size)}
    inner = Words(models.WordLevel(words, unk_token="<eos>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")


class Task:
    """Queries of random tokens, the observer's wording of the paper, and a score that costs nothing."""

    def __init__(self, tokenizer: Tokenizer, *, shortest: int = 2, longest: int = 7) -> None:
        self.tokenizer, self.max_query = tokenizer, longest
        chance = np.random.default_rng(0)
        lengths = chance.integers(shortest, longest + 1, size=4096)
        first = min(64, tokenizer.vocab_size // 2)
        rows = [tuple(chance.integers(first, tokenizer.vocab_size, size=n).tolist()) for n in lengths]
        self._queries = [Query(tokenizer.decode(ids), ids) for ids in rows]

    def queries(self, split: str) -> Sequence[Query]:
        """4,096, the same in both splits."""
        return self._queries

    def query(self, rng: np.random.Generator) -> Query:
        """One of them."""
        return self._queries[int(rng.integers(len(self._queries)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """The share of even ids."""
        return [sum(id % 2 == 0 for id in response.ids) / len(response.ids) for response in responses]

    def template(self, seat: str) -> str:
        """The query; for an observer in the paper's wording, after every response before."""
        k = int(seat.rsplit("_", 1)[1])
        if k == 0:
            return "{query}"
        return WORDING.replace("{responses}", " ".join(f"{{response_{i}}}" for i in range(k)))


BIG = {"layers": 12, "width": 768, "heads": 12, "batch": 32}
WORKS = {
    "W1": Work(),
    "W1 batch 256": Work(batch=256),
    "W2": Work(**BIG),
    "llama": Work(architecture="llama", **BIG),
    "pocket": Work(embedded="pocket", batch=128),
    "pocket-arithmetic": Work(embedded="pocket-arithmetic", batch=128),
}
"""W1: GPT-2's shape, 4 layers of 256. W2: GPT-2 small. llama: of W2's size, with a head of its own."""
GPU_WORKS = {
    "gpt2": Work(layers=12, width=768, heads=12, batch=256),
    "gpt2-large": Work(layers=36, width=1280, heads=20, batch=256),
    "llama-1b": Work(architecture="llama", layers=16, width=2048, heads=32, vocab_size=128_256, batch=64),
}
