"""Estimate of the memory an iteration needs, before it starts.

    gradients and optimizer   4 + 8 bytes per trainable weight (Adam), 4 + 2 in 8 bits
    activations               34 numbers per token, layer and channel of a pass; 2 with gradient checkpointing
    logits                    logits, probabilities and a gradient product of one chunk

Weights are already in memory when this is computed.
"""

from cory.config.schema import Config
from cory.policies.base import Policy
from cory.policies.causal_lm import ACTIVATIONS_PER_CHANNEL, CausalLMPolicy
from cory.runtime.memory import BYTES_PER_LOGIT

PER_CHANNEL_RECOMPUTED = 2


def iteration_bytes(config: Config, policies: dict[str, Policy], longest: int) -> dict[str, int]:
    """Bytes by purpose; `longest` is the largest prompt + response in tokens."""
    state = 4 + (2 if config.learner.optimizer == "adam8bit" else 8)
    trained = sum(p.numel() for policy in policies.values() for p in policy.parameters() if p.requires_grad)
    first = next(iter(policies.values()))
    needed = {"gradients and optimizer": state * trained}
    if isinstance(first, CausalLMPolicy):
        rows = (config.learner.minibatch or config.batch) // config.learner.microbatches
        rows = max(1, min(rows, first.max_rows(longest)))
        activations = rows * first.row_bytes(longest)
        if first.gradient_checkpointing:
            activations = activations * PER_CHANNEL_RECOMPUTED // ACTIVATIONS_PER_CHANNEL
        needed["activations"] = activations
        tokens = min(rows * config.max_response[1], first.max_logit_rows())
        needed["logits"] = BYTES_PER_LOGIT * tokens * first.vocab_size
    return needed


def warning(needed: dict[str, int], free: int) -> str | None:
    """A warning that an iteration will not fit, with the settings that help; None if it fits."""
    total = sum(needed.values())
    if total <= free:
        return None
    parts = ", ".join(f"{purpose} {size / 1e9:.1f}" for purpose, size in needed.items())
    return (
        f"warning: an iteration needs about {total / 1e9:.1f} GB beside the weights ({parts}) and "
        f"{free / 1e9:.1f} GB are free; raise learner.microbatches, set policy.gradient_checkpointing, use "
        "policy.kind lora_team, or lower batch or max_response"
    )
