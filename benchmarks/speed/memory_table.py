"""Memory that the paper's models need on cards of several sizes: computed, not run.

    python -m benchmarks.speed.memory_table

Weights are counted on the meta device, where tensors have shapes and no storage. All else is
an estimate of an iteration (`benchmarks.speed.memory_estimate`) with the pass sizes
that a card's free memory leads to. Products are in bfloat16, the default of GPUs that have it.

    weights   4 bytes each; 2 in the linear layers of frozen models, 4.127 bits in those of a trunk in 4 bits
    CUDA      1 GB for the driver's context and libraries
    --shard   of the linear layers a card holds one part in 2, 4 or 8, and gathers the others to sample
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from benchmarks.speed.memory_estimate import Workload, pass_rows, peak, phases
from benchmarks.speed.workloads import gpt2, llama
from cory.policies import lora_adapters
from cory.policies.lora_config import LoRAConfig
from cory.policies.precision import castable, storable
from cory.runtime.memory import Architecture, MemoryBudget, share_of

CARDS = (16, 24, 40, 48, 80, 141)
"""Memory sizes of GPUs, GB."""

CUDA = 10**9
NF4_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""Per weight: a scale of 8 bits per 64, and one of 32 bits per 256 of those."""

SHARES = (2, 4, 8)
"""Numbers of cards that share the weights of the larger models."""

Method = Literal["full", "lora", "lora4"]
METHODS: dict[Method, str] = {
    "full": "two full copies + reference",
    "lora": "LoRA team",
    "lora4": "LoRA team, 4-bit",
}


class Experiment(NamedTuple):
    """A model and the games of the paper it plays."""

    model: str
    task: str
    config: PretrainedConfig
    batch: int
    minibatch: int
    longest: int
    """Tokens of the observer's longest rows."""
    response: int
    seats: int = 2


GPT2_LARGE = gpt2(36, 1280, 20)
EXPERIMENTS = (
    Experiment("GPT2-Large", "IMDB", GPT2_LARGE, 256, 256, 58, 16),
    Experiment("Llama-2-7b", "GSM8K", llama(4096, 11008, 32, 32), 32, 2, 1024, 256),
    Experiment("Llama-2-13b", "GSM8K", llama(5120, 13824, 40, 40), 32, 2, 1024, 256),
    Experiment("Llama-2-70b", "GSM8K", llama(8192, 28672, 80, 64, 8), 32, 2, 1024, 256),
)
"""Longest rows: 8 + 16 + 10 words + 8 + 16 tokens on IMDB; on GSM8K 768 of 1-shot prompt and the pioneer's
response, and 256."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Weights of one model."""

    all: int
    linear: int
    """In linear layers of the trunk."""
    cast: int
    """In all linear layers, with the head."""
    stored: int
    """In those that a frozen model has in bfloat16: all but a head that is tied to the embedding."""
    trained: int
    """By one policy, with its value head."""


def count(config: PretrainedConfig, *, lora: bool) -> Counts:
    """Count the weights of a model without making them."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        layers: dict[str, Any] = lora_adapters.linear_layers(model)
        linear = sum(layer.weight.numel() for layer in layers.values())
        cast = sum(weight.numel() for _, _, weight in castable(model))
        stored = sum(parameter.numel() for parameter in storable(model))
        weights = sum(parameter.numel() for parameter in model.parameters())
        trained = weights
        if lora:
            lora_adapters.add(model, "llm_1", lora_adapters.settings(model, LoRAConfig(), base=""), seed=0)
            trained = sum(tensor.numel() for tensor in lora_adapters.tensors(model, "llm_1").values())
    trained += config.hidden_size + 1
    return Counts(all=weights, linear=linear, cast=cast, stored=stored, trained=trained)


def plan(experiment: Experiment, method: Method, *, checkpointing: bool, cards: int = 1) -> dict[str, Any]:
    """A line of the table: the first card of `CARDS` that holds the run, its bytes and pass sizes.

    Several `cards` share out the weights (`--shard`); figures are those of each.
    """
    counts = count(experiment.config, lora=method != "full")
    quantised = counts.linear if method == "lora4" else 0
    frozen = 4.0 * (counts.all - counts.stored) + 2 * (counts.stored - quantised) + NF4_BITS / 8 * quantised
    trained_linear = counts.linear if method == "full" else 0

    def elsewhere(shared: int) -> int:
        return shared * (cards - 1) // cards

    one = 2 * counts.linear + 4 * trained_linear  # of a policy and its reference
    weights = frozen + 4 * experiment.seats * counts.trained - elsewhere(one + 4 * trained_linear)
    own = counts.trained - elsewhere(trained_linear)
    config: Any = experiment.config
    config._attn_implementation = "sdpa"
    adapters = experiment.seats * counts.trained
    work = Workload(
        architecture=Architecture.of(config),
        vocab_size=config.vocab_size,
        trained=[own] * experiment.seats,
        gathered=elsewhere(one),
        layer=(4 if method == "full" else 2) * counts.linear // config.num_hidden_layers if cards > 1 else 0,
        cast=counts.cast if method == "full" else counts.cast - counts.stored + adapters,
        batch=-(-experiment.batch // cards),
        rows=-(-experiment.minibatch // cards),
        longest=experiment.longest,
        response=experiment.response,
        bfloat16=True,
        checkpointing=checkpointing,
    )
    line = {
        "model": experiment.model,
        "task": experiment.task,
        "method": METHODS[method],
        "checkpointing": checkpointing,
        "cards": cards,
        "weights": weights,
    }
    for card in CARDS:
        budget = MemoryBudget.of(share_of(int(card * 1e9 - CUDA - weights)))
        found = phases(work, budget)
        phase, needed = peak(found)
        if weights + CUDA + sum(needed.values()) <= card * 1e9:
            return {
                **line,
                "card": card,
                **{name: sum(purposes.values()) + weights + CUDA for name, purposes in found.items()},
                "peak": phase,
                "sampling_rows": pass_rows(work, budget, learning=False),
                "learning_rows": pass_rows(work, budget, learning=True),
            }
    found = phases(replace(work, rows=1, batch=1), MemoryBudget(activations=1, logits=1))
    least = {name: sum(purposes.values()) + weights + CUDA for name, purposes in found.items()}
    return {**line, "card": None, **least}


def table() -> list[dict[str, Any]]:
    """Every model with every method that applies to it, larger ones with gradient checkpointing too."""
    lines: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS:
        small = experiment.model == "GPT2-Large"
        methods: tuple[Method, ...] = ("full", "lora") if small else ("full", "lora", "lora4")
        for method in methods:
            cases = (False,) if small else (False, True)
            lines += [plan(experiment, method, checkpointing=checkpointing) for checkpointing in cases]
            if not small and method != "lora4":
                lines += [plan(experiment, method, checkpointing=True, cards=cards) for cards in SHARES]
    return lines


def markdown(lines: list[dict[str, Any]]) -> str:
    """The table in GB (10^9 bytes)."""
    text = [
        "| model, task | method | cards | checkpointing | weights | peak sampling | peak learning "
        "| smallest card | rows a pass: sampling, learning |",
        "|---|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for line in lines:
        fits = line["card"] is not None
        sizes = " | ".join(f"{line[name] / 1e9:.1f}" for name in ("weights", "sampling", "learning"))
        rows = f"{line['sampling_rows']}, {line['learning_rows']}" if fits else "1, 1"
        card = f"{line['card']} GB" if fits else "none"
        recomputed = "yes" if line["checkpointing"] else "no"
        text.append(
            f"| {line['model']}, {line['task']} | {line['method']} | {line['cards']} | {recomputed} "
            f"| {sizes} | {card} | {rows} |"
        )
    return "\n".join(text)


if __name__ == "__main__":
    print(markdown(table()))
