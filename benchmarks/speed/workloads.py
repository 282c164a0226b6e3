"""Workloads to be timed: model shapes with random weights, and a game with the paper's lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

from cory.pocket import lm_path
from cory_env.tokenizer import Tokenizer
from cory_env.types import Query, Response

TEMPLATE = 'I can make this sentence " {query} {responses} " more positive : {query}'
"""The observer's prompt, as in the paper: ten tokens, the query twice, the earlier responses."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One iteration of CORY: every seat responds to every query, every policy learns for four epochs."""

    architecture: Literal["gpt2", "llama"] = "gpt2"
    named: str = ""
    """A model by its name in `policy.model`, with its weights, instead of a shape."""
    layers: int = 4
    width: int = 256
    heads: int = 4
    vocab_size: int = 50_257
    batch: int = 64
    response: int = 10
    query: tuple[int, int] = (2, 7)
    """Fewest and most tokens of a query."""
    bfloat16: bool = False
    """Whether the weights are saved in bfloat16: large ones are made and read in half the time."""

    def model_config(self) -> PretrainedConfig:
        """The configuration of the model, without dropout."""
        if self.named:
            config: PretrainedConfig = AutoConfig.from_pretrained(lm_path(self.named))
            config.dtype = torch.float32
            return config
        window = max(1024, 64 + 2 * (self.response + 2 * self.query[1]))
        options = {"vocab_size": self.vocab_size, "bos_token_id": 0, "eos_token_id": 0}
        if self.architecture == "gpt2":
            return gpt2(self.layers, self.width, self.heads, n_positions=window, **options)
        inner = 8 * self.width // 3 // 64 * 64
        return llama(self.width, inner, self.layers, self.heads, max_position_embeddings=window, **options)

    def tokenizer(self) -> Any:
        """The tokenizer of a named model, else one of words."""
        if self.named:
            return AutoTokenizer.from_pretrained(lm_path(self.named))
        return make_tokenizer(self.vocab_size)

    def make_model(self, **options: Any) -> Any:
        """Random weights, the same every time, also in the shape of a named model."""
        torch.manual_seed(0)
        dtype = torch.bfloat16 if self.bfloat16 else torch.float32
        return AutoModelForCausalLM.from_config(self.model_config(), dtype=dtype, **options)

    def save(self, folder: Path) -> Path:
        """Write the model with a word-level tokenizer in from_pretrained layout."""
        self.make_model().save_pretrained(folder)
        self.tokenizer().save_pretrained(folder)
        return folder


def gpt2(layers: int, width: int, heads: int, **options: Any) -> GPT2Config:
    """A GPT-2 of these sizes, without dropout."""
    options |= {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    return GPT2Config(n_layer=layers, n_embd=width, n_head=heads, **options)


def llama(
    width: int, inner: int, layers: int, heads: int, kv_heads: int | None = None, **options: Any
) -> LlamaConfig:
    """A Llama of these sizes, with 32,000 tokens if no number is given."""
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **{"vocab_size": 32000, **options},
    )


def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with one word per id, those of the observer's template among them."""
    named = ["<eos>", *dict.fromkeys(TEMPLATE.replace("{query}", "").replace("{responses}", "").split())]
    words = {word: i for i, word in enumerate(named)}
    words |= {f"w{i}": i for i in range(len(named), vocab_size)}
    inner = RawTokenizer(models.WordLevel(words, unk_token="<eos>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")


class Task:
    """Queries of random tokens, the paper's observer template, and a score that takes no time."""

    def __init__(self, tokenizer: Tokenizer, *, shortest: int = 2, longest: int = 7) -> None:
        self.tokenizer, self.max_query = tokenizer, longest
        rng = np.random.default_rng(0)
        lengths = rng.integers(shortest, longest + 1, size=4096)
        first = min(64, tokenizer.vocab_size // 2)
        rows = [tuple(rng.integers(first, tokenizer.vocab_size, size=n).tolist()) for n in lengths]
        self._queries = [Query(tokenizer.decode(ids), ids) for ids in rows]

    def queries(self, split: str) -> Sequence[Query]:
        """4,096 queries, the same in both splits."""
        return self._queries

    def query(self, rng: np.random.Generator) -> Query:
        """Draw a query."""
        return self._queries[int(rng.integers(len(self._queries)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """The share of even ids in each response."""
        return [sum(id % 2 == 0 for id in response.ids) / len(response.ids) for response in responses]

    def template(self, seat: str) -> str:
        """The query; for an observer the paper's template, after every earlier response."""
        k = int(seat.rsplit("_", 1)[1])
        if k == 0:
            return "{query}"
        return TEMPLATE.replace("{responses}", " ".join(f"{{response_{i}}}" for i in range(k)))


WORKLOADS = {
    "W1": Workload(),
    "W2": Workload(layers=12, width=768, heads=12, batch=32),
    "W3": Workload(named="smollm2", batch=32, query=(4, 8), response=12),
}
"""W1: GPT-2's architecture, 4 layers of 256. W2: GPT-2 small. W3: SmolLM2 (`make smollm2`)."""
GPU_WORKLOADS = {
    "gpt2": Workload(layers=12, width=768, heads=12, batch=256),
    "gpt2-large": Workload(layers=36, width=1280, heads=20, batch=256),
    "smollm2": Workload(named="smollm2", batch=256, query=(4, 8), response=12),
    "llama-7b": Workload(
        architecture="llama", layers=32, width=4096, heads=32, vocab_size=32_000,
        batch=32, query=(251, 251), response=256, bfloat16=True,
    ),
}  # fmt: skip
"""smollm2: W3 at the paper's batch (`make smollm2`). llama-7b: the observer reads 768 tokens, writes 256."""
TINY: dict[str, Any] = {"layers": 2, "width": 64, "heads": 2, "vocab_size": 1000, "batch": 4, "response": 4}
REHEARSALS = {"tiny": Workload(**TINY), "tiny-llama": Workload(architecture="llama", bfloat16=True, **TINY)}
"""For `benchmarks/gpu.sh --dry`, never timed by default."""
