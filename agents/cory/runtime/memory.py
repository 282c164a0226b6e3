"""How much memory passes may use, smaller passes where it runs out, what a row needs, and what is free."""

import gc
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch

from cory.distributed import ranks
from cory.runtime.device import empty_cache, free_bytes

CPU_BYTES = 1 << 30
"""`auto` on a CPU: a constant, since a pass that is split otherwise changes the last digits of sums."""
BYTES_PER_LOGIT = 12
"""Float32 logits, probabilities (or the reference's logits) and one gradient product."""
ACTIVATIONS_PER_CHANNEL, INPUTS_PER_CHANNEL = 34, 2
"""Numbers per token, layer and channel at the peak of a pass, and of a layer that its backward recomputes."""


@dataclass(kw_only=True)
class MemoryBudget:
    """Bytes that one pass may use, in addition to weights and optimiser.

    One for all policies of a run. It is saved in checkpoints, since splitting a pass differently changes the
    last digits of sums, and changes only where memory runs out (`Attempts`).
    """

    activations: int
    logits: int

    @classmethod
    def of(cls, activations: int) -> "MemoryBudget":
        """That of the setting `memory`: a quarter of it beside it for logits."""
        return cls(activations=activations, logits=max(1, activations // 4))

    def state(self) -> dict[str, int]:
        """Return the budget as JSON."""
        return asdict(self)

    def restore(self, state: Mapping[str, int]) -> None:
        """Take over what `state` returned."""
        self.activations, self.logits = state["activations"], state["logits"]

    def halve(self) -> bool:
        """Halve both parts; False where they are as small as can be."""
        smallest = self.activations == self.logits == 1
        self.activations, self.logits = max(1, self.activations // 2), max(1, self.logits // 2)
        return not smallest


REMEDIES = (
    "set policy.gradient_checkpointing, policy.kind lora_team, lora.four_bit yes or learner.optimizer "
    "adam8bit, raise learner.microbatches, lower max_response, or take a smaller model"
)


class NoSmallerPassError(MemoryError):
    """Memory ran out in work whose passes can be no smaller."""


class Attempts:
    """Attempts at some work, in smaller passes each time.

    `while attempts.should_retry(): with attempts: work`.

    A block that runs out of an accelerator's memory must do all its work again from the start. The plain loop
    leaves no frames of its own between the work and its caller.
    """

    def __init__(self, work: str, *, budget: MemoryBudget, device: torch.device, alone: bool = True) -> None:
        """Only one attempt unless the process is `alone`: others wait for its part of the weights."""
        self.work, self.budget, self.device, self.alone = work, budget, device, alone
        self.unfinished = True
        self.reason: str | None = None
        """Why the last attempt failed."""

    def should_retry(self) -> bool:
        """Whether there is an attempt to make; before another one the budget is halved.

        NoSmallerPassError, naming the work and settings that help, if passes can be no smaller.
        """
        if self.unfinished and self.reason is not None:
            gc.collect()  # tensors of the frames that the error has left
            empty_cache(self.device)
            if not self.alone or not self.budget.halve():
                raise NoSmallerPassError(
                    f"memory ran out {self.work}, and passes can be no smaller ({self.reason[:120]}); "
                    f"{REMEDIES}"
                )
        return self.unfinished

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.unfinished = isinstance(error, torch.OutOfMemoryError)
        self.reason = str(error).partition("\n")[0]
        return self.unfinished


class Architecture(NamedTuple):
    """What the size of activations and KV caches follows from."""

    layers: int
    width: int
    heads: int
    kv_width: int
    """Numbers per token and layer in a KV cache."""
    eager: bool
    """Whether attention holds all scores."""

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        """That of a configuration of transformers."""
        text = config.get_text_config()
        heads = _largest(text, "num_attention_heads") or 1  # none without attention
        width_of_head = _largest(text, "head_dim") or text.hidden_size // heads
        kv_heads = _largest(text, "num_key_value_heads") or heads
        eager = text._attn_implementation == "eager"
        return cls(text.num_hidden_layers, text.hidden_size, heads, 2 * kv_heads * width_of_head, eager)


def _largest(config: Any, name: str) -> int | None:
    """A number of a configuration, the largest if layers differ in it; None if it has no such number."""
    try:
        number: int | None = getattr(config, name, None)
    except RuntimeError:  # transformers: it differs between layers
        layers = config.per_layer_config
        number = max(getattr(layers[i], name) for i in range(len(layers)))
    return number


def row_bytes(
    architecture: Architecture, length: int, *, learning: bool, size: int, checkpointing: bool = False
) -> int:
    """Bytes a row of `length` tokens takes at the peak of a pass, of numbers of `size` bytes.

    When learning, activations of all layers, or with gradient checkpointing those of one layer and the inputs
    of all; else activations of one layer and a KV cache of all. Eager attention holds some 3 numbers for each
    pair of tokens and head.
    """
    layers, width, heads, kv_width, eager = architecture
    layer = ACTIVATIONS_PER_CHANNEL * width + 3 * eager * heads * length
    if not learning:
        return size * length * (layer + kv_width * layers)
    if checkpointing:
        return size * length * (layer + INPUTS_PER_CHANNEL * width * layers)
    return size * length * layer * layers


def pass_bytes(memory: int | Literal["auto"], device: torch.device) -> int:
    """Bytes of activations a pass, by the setting `memory`: `auto` is `CPU_BYTES`, or by free memory.

    Free memory of an accelerator is that at the first call.
    """
    if memory != "auto":
        return memory
    return CPU_BYTES if device.type == "cpu" else _share_of_accelerator(device)


_runs = 1
"""Processes that use the accelerator of this one."""


def share_accelerator(runs: int) -> None:
    """Let `auto` mean a part of the free memory: as many processes as that use the accelerator."""
    global _runs
    _runs = runs


@cache
def _share_of_accelerator(device: torch.device) -> int:
    return share_of(free_bytes(device) // _runs)


def agree_on_smallest(budget: MemoryBudget) -> None:
    """Make the budget that of the rank with the smallest: memory may have run out on some."""
    if ranks.count() > 1:
        budgets = ranks.gather_object("the memory budget", budget)
        budget.activations = min(other.activations for other in budgets)
        budget.logits = min(other.logits for other in budgets)


def share_of(free: int) -> int:
    """Half of the free bytes of an accelerator, rounded down to a power of two, so that little changes it."""
    return 1 << (max(free // 2, 1).bit_length() - 1)
