"""Pretrain the arithmetic model on generated problems.

    python -m examples.pocket_models.arithmetic.pretrain

The corpus is a function of the seed. Started again with the same `--work`, it resumes from its last state;
progress goes to `progress.jsonl` there.

Shapes: B rows, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from examples.pocket_models.arithmetic.problems import Shares, documents
from examples.pocket_models.arithmetic.tokens import train_tokenizer
from examples.pocket_models.pretrain import Recipe, fit
from examples.work import begin


@dataclass(frozen=True, kw_only=True)
class Config(Recipe):
    """The recipe of the embedded model."""

    work: Path = Path("runs/pretrain-arithmetic")
    out: Path = Path("agents/cory/pocket/arithmetic_lm")
    steps: int = 3600
    rows: int = 16
    context: int = 512
    width: int = 128

    row: int = 192
    """Tokens per row; every eighth batch has fewer rows, each as long as the window."""

    vocab_size: int = 1024
    """Entries of the tokenizer."""

    shares: Shares = field(default_factory=Shares)


def packed(texts: Iterator[Sequence[int]], *, rows: int, length: int, end: int) -> Tensor:
    """Rows [rows, length] that each begin with a new document, as prompts do; END follows every document."""
    packed_rows = []
    for _ in range(rows):
        row: list[int] = []
        while len(row) < length:
            row += [*next(texts), end]
        packed_rows.append(row[:length])
    return torch.tensor(packed_rows)


def batches(config: Config, tokenizer: Any, *, start: int) -> Iterator[Tensor]:
    """Batches from step `start` on; each has its own seed, so that a resumed run agrees."""
    for step in count(start):
        length = config.context if step % 8 == 7 else config.row
        texts = documents(config.seed * 10**9 + step, config.shares)
        ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        yield packed(ids, rows=config.rows * config.row // length, length=length, end=tokenizer.eos_token_id)


def train(config: Config) -> None:
    """Train or resume; the model is written to `config.out`."""
    from transformers import AutoTokenizer

    begin(config)
    if not (config.work / "tokenizer.json").exists():
        shares = replace(config.shares, verdicts=0.0)  # the same tokens with and without
        texts = islice(documents(config.seed, shares), 20_000)
        train_tokenizer(texts, config.work, vocab_size=config.vocab_size, window=config.context)
    tokenizer = AutoTokenizer.from_pretrained(config.work)
    fit(config, tokenizer, partial(batches, config, tokenizer))


if __name__ == "__main__":
    import tyro

    train(tyro.cli(Config, description=__doc__))
