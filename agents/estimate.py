"""How much memory an iteration will take, before it is begun.

    gradients and optimiser   4 + 8 bytes per trainable weight (Adam), 4 + 2 in 8 bits
    activations               34 numbers per token, layer and channel of a pass; 2 where layers are recomputed
    logits                    3 chunks: logits, probabilities, the gradient's product
    kept passes               18 of these numbers, and probabilities, for every policy that is to learn from
                              the pass in which its responses were valued

Weights are in memory already when this is asked.
"""

from pathlib import Path

import torch

from agents.config import Config
from agents.policies.base import Policy
from agents.policies.causal_lm import CausalLMPolicy
from agents.policies.chunks import rows_of_chunk

KEPT, KEPT_FOR_GRADIENT, KEPT_RECOMPUTED = 34, 18, 2


def iteration_bytes(config: Config, policies: dict[str, Policy], longest: int) -> dict[str, int]:
    """Bytes by what they are for; `longest` is the most tokens of a prompt and its response."""
    state = 4 + (2 if config.learner.optimizer == "adam8bit" else 8)
    learning = sum(p.numel() for policy in policies.values() for p in policy.parameters() if p.requires_grad)
    first = next(iter(policies.values()))
    told = {"gradients and optimiser": state * learning}
    if isinstance(first, CausalLMPolicy):
        rows = (config.learner.minibatch or config.batch) // config.learner.microbatches
        rows *= 1 if first.joint is None else len(policies)  # of all of them in one pass
        rows = max(1, min(rows, first.rows_at_once(longest)))
        layers = first.model.config.get_text_config().num_hidden_layers
        kept = KEPT_RECOMPUTED if first.gradient_checkpointing else KEPT
        size = 2 if first.precision == "bfloat16" else 4
        told["activations"] = size * kept * rows * longest * first.width_at(longest) * layers
        tokens = min(rows * config.max_response[1], rows_of_chunk(first.vocab_size))
        told["logits"] = 2 * 4 * tokens * first.vocab_size
        written = config.batch * config.max_response[1]
        apart = config.valued_alone and first.joint is None and config.learner.in_one_pass(config.batch)
        if apart and first.may_keep(config.batch, longest, written, sharing=len(policies)):
            kept_of_pass = told["activations"] * KEPT_FOR_GRADIENT // KEPT
            told["kept passes"] = len(policies) * (kept_of_pass + 4 * written * first.vocab_size)
    return told


def free_bytes(device: torch.device) -> int | None:
    """What the device has left; none where it does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    told = Path("/proc/meminfo")
    if not told.exists():
        return None
    lines = told.read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def warning(needed: dict[str, int], free: int | None) -> str | None:
    """What to say of an iteration that will not fit, and which settings help."""
    total = sum(needed.values())
    if free is None or total <= free:
        return None
    parts = ", ".join(f"{what} {size / 1e9:.1f}" for what, size in needed.items())
    return (
        f"warning: an iteration needs about {total / 1e9:.1f} GB beside the weights ({parts}) and "
        f"{free / 1e9:.1f} GB are free; raise learner.microbatches, set policy.gradient_checkpointing, take "
        "policy.kind lora_team, or lower batch or max_response"
    )
