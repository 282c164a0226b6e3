"""Free memory of a device, and the share of it that forward and backward passes may use."""

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil
import torch

BYTES_PER_LOGIT = 12
"""Float32 logits, probabilities (or the reference's logits) and one gradient product."""
LIMIT_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and usage of a container, cgroup v2 and v1."""


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Bytes that one pass may use, in addition to weights and optimiser.

    Fixed for a run and saved in its checkpoints, since splitting a pass differently changes the last digits
    of sums.
    """

    activations: int
    logits: int

    def state(self) -> dict[str, int]:
        """Return the budget as JSON."""
        return asdict(self)


@cache
def memory_budget(device: torch.device) -> MemoryBudget:
    """Return the budget on `device`, from the free memory at the first call, rounded down to a power of two.

    On an accelerator half of the free memory is for activations and an eighth for logits. On a CPU, whose
    memory is shared with other processes and whose caches favour small chunks, it is a tenth and a 64th.
    """
    free = free_bytes(device)
    activations, logits = (10, 64) if device.type == "cpu" else (2, 8)
    return MemoryBudget(activations=_power_of_two(free // activations), logits=_power_of_two(free // logits))


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; for a CPU, the free memory of the machine and its container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    for limit, usage in LIMIT_FILES:
        if Path(limit).exists() and (text := Path(limit).read_text().strip()) != "max":
            free = min(free, int(text) - int(Path(usage).read_text()))
    return max(free, 1)


def _power_of_two(count: int) -> int:
    return 1 << (max(count, 1).bit_length() - 1)
