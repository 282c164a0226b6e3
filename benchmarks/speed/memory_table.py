"""GPU memory that the paper's models need, as full copies or as a LoRA team: computed, not run.

Models are built on the meta device, where tensors have shapes and no storage: weights and adapters are
counted there, and activations by running the trunk and adding up what autograd keeps for the backward pass.

    weights      float32, 4 bytes; 4.127 bits in the linear layers of a trunk in 4 bits
    gradients    4 bytes per trainable weight
    optimiser    8 bytes per trainable weight (Adam)
    activations  of one micro-batch of the longest rows, float32, all kept; less the attention scores
                 [.., L, L], which scaled_dot_product_attention does not keep on a GPU. Bfloat16 products, the
                 default there, and gradient checkpointing make them less
    margin       1 GB for CUDA itself, and five float32 tensors of a chunk of logits

Shapes: B rows, L tokens of prompt + response.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig

from cory.policies import lora_adapters
from cory.policies.lora_config import LoRAConfig

CARDS = (24, 48, 80, 141)
"""Memory sizes of GPUs, GB."""

LOGITS = 1 << 25
"""Logits per chunk in this estimate; in a run, chunks follow the free memory."""

MARGIN = 1e9 + 5 * 4 * LOGITS
NF4_BITS = 4 + 8 / 64 + 32 / (64 * 256)
"""Per weight: a scale of 8 bits per 64, and one of 32 bits per 256 of those."""

GPT2_LARGE = GPT2Config(n_layer=36, n_embd=1280, n_head=20, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0)
LLAMA_7B = LlamaConfig(
    vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32
)
LLAMA_13B = LlamaConfig(
    vocab_size=32000, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40
)
RUNS: list[tuple[str, PretrainedConfig, str, int, int, int]] = [
    ("GPT2-Large", GPT2_LARGE, "IMDB", 256, 16, 58),
    ("Llama-2-7b", LLAMA_7B, "GSM8K", 2, 1, 1024),
    ("Llama-2-13b", LLAMA_13B, "GSM8K", 2, 1, 1024),
]
"""Model, configuration, task, rows of the paper's minibatch, rows of a smaller micro-batch, tokens of the
observer's longest rows: 8 + 16 + 10 words + 8 + 16 on IMDB; on GSM8K 768 of 1-shot prompt and reference, and
256."""


def count(config: PretrainedConfig, *, lora: bool, rows: dict[str, int], length: int) -> dict[str, int]:
    """Weights: all, in linear layers of the trunk, trainable; activation bytes by name of `rows`."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        layers: dict[str, Any] = lora_adapters.linear_layers(model)
        linear = sum(layer.weight.numel() for layer in layers.values())
        weights = sum(parameter.numel() for parameter in model.parameters())
        if lora:
            settings = lora_adapters.settings(model, LoRAConfig(), base="")
            lora_adapters.add(model, "llm_1", settings, seed=0)
            model.requires_grad_(False)
            for tensor in lora_adapters.tensors(model, "llm_1").values():
                tensor.requires_grad_(True)
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad) + config.hidden_size + 1
        activations = {name: activation_bytes(model, size, length) for name, size in rows.items()}
    return {"weights": weights, "linear": linear, "trainable": trainable, **activations}


def activation_bytes(model: Any, rows: int, length: int) -> int:
    """Bytes autograd keeps of one forward pass of the trunk, without weights and attention scores."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights and tensor.shape[-2:] != (length, length):
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(
            input_ids=torch.zeros(rows, length, dtype=torch.long),
            attention_mask=torch.zeros(
                rows, 1, length, length
            ),  # making one would read values, which meta lacks
            use_cache=False,
        )
    return sum(storage.nbytes() for storage in kept.values())


def card(needed: float) -> str:
    """The smallest GPU that holds `needed` bytes and the margin."""
    return next((f"{size} GB" for size in CARDS if needed + MARGIN <= size * 1e9), "none")


def row(run: tuple[str, PretrainedConfig, str, int, int, int], method: str) -> dict[str, Any]:
    """One line of the table, in bytes."""
    name, config, task, minibatch, smaller, length = run
    full = method == "two full copies + reference"
    sizes = count(
        config, lora=not full, rows={"activations": minibatch, "smaller_activations": smaller}, length=length
    )
    if full:
        weights = 4.0 * (3 * sizes["weights"])
    else:
        quantised = sizes["linear"] if "4-bit" in method else 0
        backbone = 4.0 * (sizes["weights"] - quantised) + NF4_BITS / 8 * quantised
        weights = backbone + 4.0 * 2 * sizes["trainable"]
    figures = {
        "weights": weights,
        "gradients": 4.0 * 2 * sizes["trainable"],
        "optimizer": 8.0 * 2 * sizes["trainable"],
        "activations": float(sizes["activations"]),
    }
    total = sum(figures.values())
    smaller_total = total - sizes["activations"] + sizes["smaller_activations"]
    return {
        "model": name, "task": task, "method": method, **figures, "total": total, "card": card(total),
        "rows": minibatch, "smaller_rows": smaller, "smaller_total": smaller_total,
        "smaller_card": card(smaller_total), "tokens_per_row": length,
    }  # fmt: skip


def table() -> list[dict[str, Any]]:
    """Every model with every method that applies to it."""
    methods = ["two full copies + reference", "LoRA team"]
    return [
        row(run, method)
        for run in RUNS
        for method in (methods if run[1] is GPT2_LARGE else [*methods, "LoRA team, 4-bit"])
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table in GB (10^9 bytes)."""
    lines = [
        "| model, task | method | weights | gradients | optimiser | activations (rows) | total | card "
        "| micro-batches of | total | card |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    for figures in rows:
        parts = [
            f"{figures[name] / 1e9:.1f}" for name in ("weights", "gradients", "optimizer", "activations")
        ]
        parts[-1] += f" ({figures['rows']} x {figures['tokens_per_row']})"
        lines.append(
            f"| {figures['model']}, {figures['task']} | {figures['method']} | {' | '.join(parts)} "
            f"| {figures['total'] / 1e9:.1f} | {figures['card']} | {figures['smaller_rows']} "
            f"| {figures['smaller_total'] / 1e9:.1f} | {figures['smaller_card']} |"
        )
    return "\n".join(lines)
