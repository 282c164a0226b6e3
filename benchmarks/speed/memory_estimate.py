"""Estimate of the memory that an iteration of training needs, phase by phase.

    optimizer    8 bytes per trained weight (Adam), 2 in 8 bits; from the first step on, in all phases
    gradients    4 bytes per trained weight of one policy: a policy's are freed before the next one learns
    casts        2 bytes per float32 weight of linear layers where products are in bfloat16: autocast copies
                 them once for a response, and a learning pass keeps the copies for its backward pass
    activations  rows of the largest pass (`cory.runtime.memory.row_bytes`), with the KV cache when sampling
    logits       logits, probabilities and a gradient product of one chunk

    gathered     of weights that ranks share out: when sampling and scoring what other ranks hold of a policy
                 and its reference, in a learning pass two layers, whole, and the gradients of one

Weights are already in memory when this is computed. The passes of scoring have the rows of learning and keep
nothing for a gradient, so they are never the peak.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cory.config.schema import Config
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.precision import castable
from cory.runtime.memory import BYTES_PER_LOGIT, Architecture, MemoryBudget, row_bytes
from cory.training.trainer import Trainer

Phases = dict[str, dict[str, int]]
"""Bytes by phase and purpose."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the memory of an iteration follows from."""

    architecture: Architecture
    vocab_size: int
    trained: Sequence[int]
    """Trained weights of each policy, as far as this process holds them."""
    cast: int
    """Float32 weights in the linear layers of one model."""
    batch: int
    """Games of an iteration."""
    rows: int
    """Rows of a micro-batch."""
    longest: int
    """Largest prompt + response in tokens."""
    response: int
    """Largest response in tokens."""
    gathered: int = 0
    """Bytes of a policy's and its reference's weights that other ranks hold."""
    layer: int = 0
    """Bytes of the largest layer that ranks share out."""
    bfloat16: bool = False
    eight_bit: bool = False
    checkpointing: bool = False


def phases(work: Workload, budget: MemoryBudget) -> Phases:
    """Bytes by purpose in the phases that may be the peak, with the pass sizes that `budget` leads to."""
    optimizer = (2 if work.eight_bit else 8) * sum(work.trained)
    casts = 2 * work.cast if work.bfloat16 else 0
    layers = work.architecture.layers
    sampling, learning = (pass_rows(work, budget, learning=learning) for learning in (False, True))
    return {
        "sampling": {
            "optimizer": optimizer,
            "casts": casts,
            "gathered": work.gathered,
            "activations": sampling * bytes_of_row(work, learning=False),
            "logits": logit_bytes(sampling, work, budget),
        },
        "learning": {
            "optimizer": optimizer,
            "gradients": 4 * max(work.trained),
            "casts": casts // layers if work.checkpointing else casts,  # layers are recomputed one by one
            "gathered": 3 * work.layer,
            "activations": learning * bytes_of_row(work, learning=True),
            "logits": logit_bytes(learning * work.response, work, budget),
        },
    }


def pass_rows(work: Workload, budget: MemoryBudget, *, learning: bool) -> int:
    """Rows of the largest pass, as policies and learners split batches."""
    fit = budget.activations // max(1, bytes_of_row(work, learning=learning))
    if not learning:
        fit = min(fit, budget.logits // (BYTES_PER_LOGIT * work.vocab_size))
    return max(1, min(work.rows if learning else work.batch, fit))


def bytes_of_row(work: Workload, *, learning: bool) -> int:
    """Bytes of a row of the longest games."""
    return row_bytes(
        work.architecture,
        work.longest,
        learning=learning,
        size=2 if work.bfloat16 else 4,
        checkpointing=work.checkpointing,
    )


def logit_bytes(tokens: int, work: Workload, budget: MemoryBudget) -> int:
    """Bytes of the logits of `tokens`, at most those of one chunk."""
    at_once = max(1, budget.logits // (BYTES_PER_LOGIT * work.vocab_size))
    return BYTES_PER_LOGIT * work.vocab_size * min(tokens, at_once)


def of_run(config: Config, policies: Mapping[str, CausalLMPolicy], longest: int) -> Phases:
    """`phases` of a run's policies; `longest` is the largest prompt + response in tokens."""
    first = next(iter(policies.values()))
    work = Workload(
        architecture=Architecture.of(first.model.config),
        cast=sum(weight.numel() for _, _, weight in castable(first.model)),
        vocab_size=first.vocab_size,
        trained=[
            sum(p.numel() for p in policy.parameters() if p.requires_grad) for policy in policies.values()
        ],
        batch=config.batch,
        rows=(config.learner.minibatch or config.batch) // config.learner.microbatches,
        longest=longest,
        response=config.max_response[1],
        bfloat16=first.precision == "bfloat16",
        eight_bit=config.learner.optimizer == "adam8bit",
        checkpointing=config.policy.gradient_checkpointing,
    )
    return phases(work, first.memory)


def peak(needed: Phases) -> tuple[str, dict[str, int]]:
    """The phase that needs most, and what it needs."""
    return max(needed.items(), key=lambda phase: sum(phase[1].values()))


def of_trainer(trainer: Trainer) -> int:
    """Bytes of all weights of a trainer of causal LMs, and of the phase that needs most."""
    policies: dict[str, Any] = {**trainer.policies}
    modules = [*policies.values(), *trainer.references.values()]
    modules += [policy.model for policy in policies.values()]  # a team's backbone is no part of its policies
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    weights: dict[int, int] = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}
    response = trainer.config.max_response[1]
    longest = response + max(view.max_prompt(trainer.task.max_query, response) for view in trainer.game.views)
    _, needed = peak(of_run(trainer.config, policies, longest))
    return sum(weights.values()) + sum(needed.values())
