"""Settings of LoRA teams, and names of their backbones; does not import PEFT, which takes seconds."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cory import pocket
from cory.runtime.checks import check_fields

WEIGHTS = "adapter_model.safetensors"
SETTINGS = "adapter_config.json"
BACKBONE = "backbone.json"
"""Beside an adapter: name and sha256 of the backbone it belongs to."""
VALUE_HEAD = "value_head.safetensors"
LORA_A, LORA_B = ".lora_A.", ".lora_B."
"""In the names of an adapter's two factors: it adds lora_B @ lora_A, times alpha / rank, to a layer."""


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

    four_bit: Literal["no", "yes"] = "no"
    """`yes`: the backbone in 4 bits (NF4) instead of 32 or 16, which needs the extra `quant`."""

    def __post_init__(self) -> None:
        check_fields(self, "lora", count="rank alpha")
        if self.adapter is not None:
            object.__setattr__(self, "adapter", self.adapter.expanduser())
        for name in (SETTINGS, WEIGHTS):
            if self.adapter is not None and not (self.adapter / name).is_file():
                raise ValueError(f"lora.adapter {self.adapter} holds no {name}; name a folder saved by PEFT")


def shared_name(path: str | Path) -> str:
    """Return the name of a model that other machines know: an embedded model's name, or the hub name.

    A folder or file of the user has no such name; it is returned as an absolute path.
    """
    folder = Path(path)
    if not folder.exists():
        return str(path)
    embedded = {model.resolve(): name for name, model in pocket.MODELS.items()}
    return embedded.get(folder.resolve(), str(folder.resolve()))


def weights_sha256(path: Path) -> str:
    """Return the SHA-256 of a GGUF file, or of a folder's safetensors files in the order of their names."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.glob("*.safetensors")):
        if file.name != VALUE_HEAD:
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def check_embedded(base: str, backbone: Path) -> None:
    """Raise ValueError if the embedded model `base` is not the one in an adapter's `backbone.json`."""
    if base not in pocket.MODELS:
        return
    saved = json.loads(backbone.read_text(encoding="utf-8"))["sha256"]
    if (here := weights_sha256(Path(pocket.lm_path(base)))) != saved:
        raise ValueError(
            f"the adapter {backbone.parent} belongs to an embedded model {base!r} with sha256 {saved[:12]}, "
            f"and this version of cory has one with {here[:12]}; load it with the version that trained it"
        )
