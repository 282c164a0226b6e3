"""Settings of LoRA teams; does not import PEFT, which takes seconds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

WEIGHTS = "adapter_model.safetensors"
SETTINGS = "adapter_config.json"


@dataclass(frozen=True, kw_only=True)
class LoRAConfig:
    """The adapters of a LoRA team."""

    rank: int = 16
    """Width of every adapter: a linear layer of m x n gets rank * (m + n) trainable weights."""

    alpha: int = 32
    """An adapter's output is multiplied by alpha / rank."""

    targets: tuple[str, ...] = ()
    """Linear layers that get an adapter, by the last parts of their names; empty = all of the trunk."""

    adapter: Path | None = None
    """PEFT folder that all policies and the reference start from; its rank, alpha and targets are used."""

    four_bit: Literal["no", "yes", "auto"] = "no"
    """`yes`: the backbone in 4 bits (NF4) instead of 32, which needs a CUDA device and the extra `quant`.
    `auto`: on CUDA devices."""

    def __post_init__(self) -> None:
        for name in ("rank", "alpha"):
            if getattr(self, name) < 1:
                raise ValueError(f"lora.{name} is {getattr(self, name)}; give 1 or more")
        if self.four_bit not in ("no", "yes", "auto"):
            raise ValueError(f"lora.four_bit is {self.four_bit!r}; there are no, yes, auto")
        for name in (SETTINGS, WEIGHTS):
            if self.adapter is not None and not (self.adapter / name).is_file():
                raise ValueError(f"lora.adapter {self.adapter} holds no {name}; name a folder saved by PEFT")
