"""Free memory of a device, the share of it that passes may use, and what a row of a pass needs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from cory.distributed import ranks
from cory.runtime.device import free_on_accelerator

BYTES_PER_LOGIT = 12
"""Float32 logits, probabilities (or the reference's logits) and one gradient product."""
ACTIVATIONS_PER_CHANNEL, INPUTS_PER_CHANNEL = 34, 2
"""Numbers per token, layer and channel at the peak of a pass, and of a layer that its backward recomputes."""
LIMIT_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and usage of a container, cgroup v2 and v1."""


@dataclass(kw_only=True)
class MemoryBudget:
    """Bytes that one pass may use, in addition to weights and optimiser.

    One for all policies of a run. It is saved in checkpoints, since splitting a pass differently changes the
    last digits of sums, and changes only where memory runs out (`cory.runtime.attempts`).
    """

    activations: int
    logits: int

    def state(self) -> dict[str, int]:
        """Return the budget as JSON."""
        return asdict(self)

    def halve(self, sizes: Callable[[], object]) -> bool:
        """Halve either part until it changes `sizes()`, those of the passes of some work; whether any did.

        A part that changes nothing even at 1 byte stays as it was: other work may have use for it.
        """
        changed = False
        for part in ("activations", "logits"):
            before, now = getattr(self, part), sizes()
            while sizes() == now and getattr(self, part) > 1:
                setattr(self, part, getattr(self, part) // 2)
            if sizes() == now:
                setattr(self, part, before)
            else:
                changed = True
        return changed


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
        heads = text.num_attention_heads
        width_of_head = getattr(text, "head_dim", None) or text.hidden_size // heads
        kv_heads = getattr(text, "num_key_value_heads", None) or heads
        eager = text._attn_implementation == "eager"
        return cls(text.num_hidden_layers, text.hidden_size, heads, 2 * kv_heads * width_of_head, eager)


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


@cache
def memory_budget(device: torch.device) -> MemoryBudget:
    """Return the budget on `device`, from the free memory at the first call."""
    return budget_of(free_bytes(device), cpu=device.type == "cpu")


def smallest_budget(device: torch.device) -> MemoryBudget:
    """A budget of a run's own, the smallest of all ranks: they split passes alike."""
    own = ranks.gathered("memory", lambda: memory_budget(device))
    return min_of(own)


def agree_on_smallest(budget: MemoryBudget) -> None:
    """Make the budget that of the rank with the smallest: memory may have run out on some."""
    if ranks.count() > 1:
        smallest = min_of(ranks.of_all("the memory budget", budget))
        budget.activations, budget.logits = smallest.activations, smallest.logits


def min_of(budgets: Sequence[MemoryBudget]) -> MemoryBudget:
    """The smaller parts of several budgets."""
    return MemoryBudget(
        activations=min(budget.activations for budget in budgets),
        logits=min(budget.logits for budget in budgets),
    )


def budget_of(free: int, *, cpu: bool = False) -> MemoryBudget:
    """Return the budget where `free` bytes are free, rounded down to powers of two.

    On an accelerator half of the free memory is for activations and an eighth for logits. On a CPU, whose
    memory is shared with other processes and whose caches favour small chunks, it is a tenth and a 64th.
    """
    activations, logits = (10, 64) if cpu else (2, 8)
    return MemoryBudget(activations=_power_of_two(free // activations), logits=_power_of_two(free // logits))


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; for a CPU, the free memory of the machine and its container."""
    if device.type != "cpu":
        return free_on_accelerator(device)
    free = psutil.virtual_memory().available
    for limit, usage in LIMIT_FILES:
        if Path(limit).exists() and (text := Path(limit).read_text().strip()) != "max":
            free = min(free, int(text) - int(Path(usage).read_text()))
    return max(free, 1)


def _power_of_two(count: int) -> int:
    return 1 << (max(count, 1).bit_length() - 1)
