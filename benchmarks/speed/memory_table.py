"""What the paper's models need on a GPU, as full copies or as a LoRA team: computed, not run.

Models are built on the meta device, where tensors have shapes and no storage: weights and lora_adapters are
counted there, and activations by running the trunk and adding up what autograd keeps for the backward pass.

    weights      float32, 4 bytes; 4.127 bits in the linear layers of a trunk in 4 bits
    gradients    4 bytes per trainable weight
    optimiser    8 bytes per trainable weight (Adam)
    activations  of one micro-batch of the longest rows, float32, every one kept; less the attention scores
                 [.., L, L], which scaled_dot_product_attention keeps no more on a GPU. Bfloat16 products, the
                 default there, and gradient_checkpointing make them less
    margin       1 GB for CUDA itself, and five tensors of a chunk of logits

Shapes: B rows, L tokens of prompt + response.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig

from cory.policies import lora_adapters
from cory.policies.chunked_loss import CHUNK

CARDS = (24, 48, 80, 141)
"""GB of memory of a card."""

MARGIN = 1e9 + 5 * 4 * CHUNK
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
"""Model, shape, task, rows of the paper's minibatch, rows of a smaller micro-batch, tokens of the observer's
longest rows: 8 + 16 + 10 words + 8 + 16 on IMDB; on GSM8K 768 of 1-shot prompt and reference, and 256."""


def counted(shape: PretrainedConfig, *, lora: bool, rows: dict[str, int], length: int) -> dict[str, int]:
    """Weights of the model, of its trunk's linear layers, those that learn; activation bytes by name of
    `rows`."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa").eval()
        linear = sum(layer.weight.numel() for layer in lora_adapters.linear_layers(model).values())
        weights = sum(parameter.numel() for parameter in model.parameters())
        if lora:
            lora_adapters.add(model, "llm_1", lora_adapters.settings(model, lora_adapters.Config(), base=""), seed=0)
            model.requires_grad_(False)
            for tensor in lora_adapters.tensors(model, "llm_1").values():
                tensor.requires_grad_(True)
        learning = sum(p.numel() for p in model.parameters() if p.requires_grad) + shape.hidden_size + 1
        kept = {name: activation_bytes(model, count, length) for name, count in rows.items()}
    return {"weights": weights, "linear": linear, "learning": learning, **kept}


def activation_bytes(model: Any, rows: int, length: int) -> int:
    """Bytes autograd keeps of one forward pass of the trunk, weights and attention scores left out."""
    ours = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in ours and tensor.shape[-2:] != (length, length):
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(
            input_ids=torch.zeros(rows, length, dtype=torch.long),
            attention_mask=torch.zeros(rows, 1, length, length),  # given, as making one looks at numbers
            use_cache=False,
        )
    return sum(storage.nbytes() for storage in kept.values())


def card(needed: float) -> str:
    """The smallest card that holds so many bytes and the margin."""
    return next((f"{size} GB" for size in CARDS if needed + MARGIN <= size * 1e9), "none")


def row(run: tuple[str, PretrainedConfig, str, int, int, int], method: str) -> dict[str, Any]:
    """One line of the table, in bytes."""
    name, shape, task, minibatch, smaller, length = run
    full = method == "two full copies + reference"
    told = counted(
        shape, lora=not full, rows={"activations": minibatch, "smaller_activations": smaller}, length=length
    )
    if full:
        weights = 4.0 * (3 * told["weights"])
    else:
        in_bits = told["linear"] if "4-bit" in method else 0
        backbone = 4.0 * (told["weights"] - in_bits) + NF4_BITS / 8 * in_bits
        weights = backbone + 4.0 * 2 * told["learning"]
    figures = {
        "weights": weights,
        "gradients": 4.0 * 2 * told["learning"],
        "optimizer": 8.0 * 2 * told["learning"],
        "activations": float(told["activations"]),
    }
    total = sum(figures.values())
    less = total - told["activations"] + told["smaller_activations"]
    return {
        "model": name, "task": task, "method": method, **figures, "total": total, "card": card(total),
        "rows": minibatch, "smaller_rows": smaller, "smaller_total": less, "smaller_card": card(less),
        "tokens_per_row": length,
    }  # fmt: skip


def table() -> list[dict[str, Any]]:
    """Every model with every method that is meant for it."""
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
        "| in micro-batches of | total | card |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    for told in rows:
        parts = [f"{told[name] / 1e9:.1f}" for name in ("weights", "gradients", "optimizer", "activations")]
        parts[-1] += f" ({told['rows']} x {told['tokens_per_row']})"
        lines.append(
            f"| {told['model']}, {told['task']} | {told['method']} | {' | '.join(parts)} "
            f"| {told['total'] / 1e9:.1f} | {told['card']} | {told['smaller_rows']} "
            f"| {told['smaller_total'] / 1e9:.1f} | {told['smaller_card']} |"
        )
    return "\n".join(lines)
