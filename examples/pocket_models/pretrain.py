"""Pretrain the pocket LM on unlabelled movie reviews.

    python -m examples.pocket_models.pretrain --data unsup.parquet

GPT-2 architecture, or Llama; a BPE of its own. Muon trains the matrices inside the blocks, AdamW everything
else. Started again with the same `--work`, it resumes from its last state; progress goes to `progress.jsonl`
there.

Shapes: B rows, T tokens, V vocabulary.
"""

import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from cory.training.checkpoint import optimizer_tensors, restore_optimizer, save_tensors
from examples.pocket_models.corpus import reviews, train_tokenizer
from examples.work import begin


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Shape, training length and folders of a model."""

    work: Path
    """Folder of the tokenizer, the resumable state and the progress file."""

    out: Path
    """Folder the finished model is written to, in fp16."""

    steps: int
    """Optimiser steps; the learning rate decays linearly to zero at the last."""

    rows: int = 32
    """Rows per step."""

    context: int = 256
    """The model's window in tokens."""

    architecture: Literal["gpt2", "llama"] = "gpt2"
    """Llama has rotary positions, RMS norms and a gated layer of 8/3 of the width, rounded up to eights."""

    layers: int = 4
    width: int = 256
    heads: int = 4

    matrix_lr: float = 0.015
    """Muon's learning rate."""

    lr: float = 5e-3
    """AdamW's learning rate for embeddings, norms and biases."""

    warmup: int = 60
    seed: int = 0

    save_every: int = 200
    """Steps between resumable states."""

    device: str = "cpu"
    """Where it is trained."""

    compiled: bool = True
    """Compile the loss, which pays after a few hundred steps and needs a C++ compiler."""


@dataclass(frozen=True, kw_only=True)
class Config(Recipe):
    """The recipe of the model of reviews; its rows are as long as its window."""

    data: Path
    """Parquet file of reviews with the columns `text` and `label`; labels are not read."""

    work: Path = Path("runs/pretrain")
    out: Path = Path("agents/cory/pocket/lm")
    steps: int = 3200


def rows_of(documents: list[list[int]], *, context: int, end: int, seed: int) -> list[list[int]]:
    """One epoch of training rows, shuffled.

    A document is END, its tokens, END. Every document longer than `context` starts rows of its own, so that
    the model learns openings at the positions where it will generate them; the remainders are packed one
    after another.
    """
    order = random.Random(seed)
    rows: list[list[int]] = []
    rest: list[int] = []
    for document in order.sample(documents, len(documents)):
        tokens = [end, *document]
        whole = len(tokens) // context * context
        rows += [tokens[i : i + context] for i in range(0, whole, context)]
        rest += tokens[whole:]
    rest.append(end)
    rows += [rest[i : i + context] for i in range(0, len(rest) - context + 1, context)]
    order.shuffle(rows)
    return rows


def batches(documents: list[list[int]], config: Config, *, end: int, start: int) -> Iterator[Tensor]:
    """Batches [B, T] from step `start` on: a function of seed and step, so that a resumed run agrees."""
    epoch, skip = 0, start
    while True:
        rows = rows_of(documents, context=config.context, end=end, seed=config.seed + epoch)
        steps = len(rows) // config.rows
        for step in range(min(skip, steps), steps):
            yield torch.tensor(rows[step * config.rows : (step + 1) * config.rows])
        skip = max(0, skip - steps)
        epoch += 1


def make_optimizers(model: torch.nn.Module, config: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and re.search(r"\.(h|layers)\.", n)]
    ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [
        torch.optim.Muon(
            matrices, lr=config.matrix_lr, weight_decay=0.0, momentum=0.95, adjust_lr_fn="original"
        ),
        torch.optim.AdamW(rest, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def save_state(
    path: Path, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], step: int
) -> None:
    """Write the state of training to one safetensors file, atomically."""
    tensors = {f"model.{name}": tensor for name, tensor in model.named_parameters()}
    for i, optimizer in enumerate(optimizers):
        tensors |= {f"optimizer{i}.{name}": tensor for name, tensor in optimizer_tensors(optimizer).items()}
    save_tensors(path, {**tensors, "step": torch.tensor(step)})


def load_state(path: Path, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    """Load what `save_state` wrote, in place; the next step."""
    tensors = load_file(path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    for i, optimizer in enumerate(optimizers):
        prefix = f"optimizer{i}."
        state = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        restore_optimizer(optimizer, state)
    return int(tensors["step"])


def next_token_loss(model: torch.nn.Module, ids_BT: Tensor) -> Tensor:
    """Mean nats per token."""
    with torch.autocast(ids_BT.device.type, torch.bfloat16):
        logits_BTV = model(input_ids=ids_BT).logits
    return cross_entropy(logits_BTV[:, :-1].flatten(0, 1).float(), ids_BT[:, 1:].flatten())


def train(config: Config) -> None:
    """Train or resume; the model is written to `config.out`."""
    from transformers import AutoTokenizer

    begin(config)
    texts, _ = reviews(config.data)
    if not (config.work / "tokenizer.json").exists():
        train_tokenizer(texts, config.work)
    tokenizer = AutoTokenizer.from_pretrained(config.work)
    documents = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    fit(config, tokenizer, partial(batches, documents, config, end=tokenizer.eos_token_id))


def make_model(config: Recipe, *, vocab_size: int, end: int) -> torch.nn.Module:
    """An untrained model of the recipe's shape and seed."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(config.seed)
    if config.architecture == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size, max_position_embeddings=config.context,
                num_hidden_layers=config.layers, hidden_size=config.width, num_attention_heads=config.heads,
                intermediate_size=math.ceil(config.width / 3) * 8, tie_word_embeddings=True,
                bos_token_id=end, eos_token_id=end, pad_token_id=end,
            )
        )  # fmt: skip
    shape = GPT2Config(
        vocab_size=vocab_size, n_positions=config.context, n_layer=config.layers, n_embd=config.width,
        n_head=config.heads, bos_token_id=end, eos_token_id=end, pad_token_id=end,
        activation_function="gelu_pytorch_tanh",  # gelu_new in one fused kernel
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(shape)


def fit(config: Recipe, tokenizer: Any, batches_from: Callable[..., Iterator[Tensor]]) -> None:
    """Train or resume a model on `batches_from(start=step)`, batches [B, T] from that step on."""
    model = make_model(config, vocab_size=len(tokenizer), end=tokenizer.eos_token_id).to(config.device)
    optimizers = make_optimizers(model, config)
    base_lrs = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    state = config.work / "state.safetensors"
    start = load_state(state, model, optimizers) if state.exists() else 0
    step_loss = torch.compile(next_token_loss) if config.compiled else next_token_loss
    start_time, tokens = time.time(), 0
    with (config.work / "progress.jsonl").open("a") as progress:
        for step, ids_BT in enumerate(batches_from(start=start), start):
            if step == config.steps:
                break
            scale = min(
                1.0, (step + 1) / config.warmup, (config.steps - step) / (config.steps - config.warmup)
            )
            for optimizer, lrs in zip(optimizers, base_lrs, strict=True):
                for group, lr in zip(optimizer.param_groups, lrs, strict=True):
                    group["lr"] = lr * scale
            loss = step_loss(model, ids_BT.to(config.device))
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"the loss is {loss.item()} at step {step}; lower --matrix-lr or --lr"
                )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            tokens += ids_BT.numel()
            if step % 20 == 0:
                rate = tokens / (time.time() - start_time)
                row = {"step": step, "loss": loss.item(), "tokens_per_s": rate}
                print(json.dumps(row), file=progress, flush=True)
            if (step + 1) % config.save_every == 0:
                save_state(state, model, optimizers, step + 1)
    model.half().save_pretrained(config.out)
    tokenizer.save_pretrained(config.out)


if __name__ == "__main__":
    import tyro

    train(tyro.cli(Config, description=__doc__))
