"""LoRA adapters (PEFT) injected into a causal LM.

Knows no games.
"""

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cory import rng
from cory.policies.lora_config import WEIGHTS, LoRAConfig

PLAIN = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Values of PEFT's `init_lora_weights` that leave the base model as it is."""


def linear_layers(model: Any) -> dict[str, Any]:
    """Return the linear layers of the trunk by name, without the head.

    Subclasses in the code of a model compute more, as routers do; those of 4 bits are linear layers.
    """
    from transformers.pytorch_utils import Conv1D

    within = f"{model.base_model_prefix}."
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, (nn.Linear, Conv1D))
        and not type(layer).__module__.startswith("transformers.models.")
        and name.startswith(within)
    }


def settings(model: Any, config: LoRAConfig, *, base: str) -> LoraConfig:
    """Make the PEFT configuration of an adapter; ValueError for targets the model lacks."""
    from transformers.pytorch_utils import Conv1D

    layers = linear_layers(model)
    if config.adapter is not None:
        saved = PeftConfig.from_pretrained(str(config.adapter))
        if not isinstance(saved, LoraConfig):
            raise ValueError(f"lora.adapter {config.adapter} is {saved.peft_type.value}; name a LoRA adapter")
        init = saved.init_lora_weights
        if init not in PLAIN or saved.alora_invocation_tokens or saved.layer_replication:
            kind = f"init_lora_weights {init}" if init not in PLAIN else "layers or tokens of its own"
            raise ValueError(
                f"lora.adapter {config.adapter} has {kind}: it changes its base, or does not act everywhere; "
                "convert it to a plain one with PEFT, or train policy.kind causal_lm on it"
            )
        if saved.lora_bias and any(layer.bias is None for layer in layers.values()):
            raise ValueError(
                f"lora.adapter {config.adapter} has lora_bias, and the model has layers without one: no "
                "whole model can hold it; take an adapter without"
            )
        saved.lora_dropout, saved.init_lora_weights, saved.inference_mode = 0.0, True, False
        saved.base_model_name_or_path = base
        return saved
    known = sorted({name.rsplit(".", 1)[-1] for name in layers})
    for target in config.targets:
        if not any(name.endswith(f".{target}") for name in layers):
            raise ValueError(
                f"lora.targets names {target!r}, which is no linear layer of the trunk of "
                f"{type(model).__name__}; there are {', '.join(known)}"
            )
    return LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=list(config.targets or _all_of(layers, known, model)),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),
        base_model_name_or_path=base,
        task_type="CAUSAL_LM",
    )


def _all_of(layers: Collection[str], known: Sequence[str], model: Any) -> Sequence[str]:
    """The last parts of the layers' names; the whole names where PEFT would find other modules by those."""
    found = {name for name, _ in model.named_modules() if name.rsplit(".", 1)[-1] in known}
    return known if found == set(layers) else sorted(layers)


def add(model: Any, name: str, config: LoraConfig, *, seed: int) -> None:
    """Add a float32 adapter to the layers `config` targets.

    Its second factor is 0, so outputs do not change yet; the first is a function of `seed` and `name` only.
    """
    key = int(rng.bits((seed, "adapter", name), np.zeros(1), 1)[0, 0])
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), _seen_in_float32(model):
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        torch.manual_seed(key % 2**63)
        inject_adapter_in_model(copy(config), model, adapter_name=name)
    pairs = factors(model, name)
    if outside := [layer for layer in pairs if not layer.startswith(f"{model.base_model_prefix}.")]:
        raise ValueError(
            f"the adapter has factors of {outside[0]}, outside the trunk, which would not learn; name one on "
            "linear layers of the trunk"
        )
    for pair in pairs.values():
        pair.float()  # PEFT gives them the type 4-bit layers compute in; in bfloat16 small steps are lost


def add_in_float32(model: Any) -> None:
    """Have layers with products in bfloat16 add what an adapter contributes in float32, and return that.

    A sum in bfloat16 is the base's number again wherever the adapter contributes less than half a step of it:
    what eager passes add is then smaller than what is compiled, where sums stay in float32.
    """
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.base_layer.register_forward_hook(_in_float32)


def _in_float32(module: nn.Module, args: object, product: Tensor) -> Tensor:  # noqa: ARG001
    return product.float()


@contextmanager
def _seen_in_float32(model: Any) -> Iterator[None]:
    """Inside, weights in bfloat16 look like float32, so that PEFT does not round the adapters it draws.

    What stands in for a weight has its shape and a single number.
    """
    layers: Iterator[Any] = iter(linear_layers(model).values())
    stored = {layer: layer.weight for layer in layers if layer.weight.dtype == torch.bfloat16}
    try:
        for layer, weight in stored.items():
            zero = torch.zeros((), dtype=torch.float32, device=weight.device).expand(weight.shape)
            layer._parameters["weight"] = nn.Parameter(zero, requires_grad=False)
        yield
    finally:
        for layer, weight in stored.items():
            layer._parameters["weight"] = weight


def factors(model: Any, name: str) -> dict[str, nn.ModuleDict]:
    """Return the two factors of the adapter `name`, by layer, in alphabetical order."""
    pairs = {
        layer: nn.ModuleDict({"lora_A": module.lora_A[name], "lora_B": module.lora_B[name]})
        for layer, module in model.named_modules()
        if isinstance(module, LoraLayer) and name in module.lora_A
    }
    return dict(sorted(pairs.items()))


def tensors(model: Any, name: str) -> dict[str, nn.Parameter]:
    """Return the parameters of the adapter `name`, by their names in PEFT's files."""
    return {
        f"base_model.model.{layer}.{key}": parameter
        for layer, pair in factors(model, name).items()
        for key, parameter in pair.named_parameters()
    }


@torch.no_grad()
def read(model: Any, name: str, folder: str | Path) -> None:
    """Load the weights of a PEFT folder into the adapter `name`, in place."""
    adapter, saved = tensors(model, name), load_file(Path(folder) / WEIGHTS)
    for key in sorted(adapter.keys() | saved.keys()):
        if key not in adapter or key not in saved or adapter[key].shape != saved[key].shape:
            raise ValueError(
                f"{folder} and the adapter of policy {name!r} differ in {key} or its shape; name a folder of "
                "the same rank and targets, plain LoRA on linear layers of the trunk"
            )
    for key, tensor in adapter.items():
        tensor.copy_(saved[key])


def write(model: Any, name: str, config: LoraConfig, folder: str | Path) -> None:
    """Write the adapter `name` as a PEFT folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    saved = copy(config)
    if isinstance(saved.target_modules, set):
        saved.target_modules = sorted(saved.target_modules)  # the order of a set differs between processes
    saved.inference_mode = True
    saved.save_pretrained(str(folder))
    contiguous = {key: tensor.detach().contiguous() for key, tensor in tensors(model, name).items()}
    save_file(contiguous, Path(folder) / WEIGHTS, metadata={"format": "pt"})


class Switch:
    """Activates adapters in all layers at once without touching `requires_grad`.

    PEFT's `set_adapter` and `disable_adapter` freeze and unfreeze parameters. Every layer reads its list of
    active adapters at each call; here all layers share one list.
    """

    def __init__(self, model: Any) -> None:
        self._active: list[str] = []
        for layer in model.modules():
            if isinstance(layer, LoraLayer):
                layer._active_adapter = self._active

    @contextmanager
    def on(self, names: Sequence[str]) -> Iterator[None]:
        """Inside, only the adapters `names` are active; none of them = the plain backbone."""
        before = self._active.copy()
        self._active[:] = names
        try:
            yield
        finally:
            self._active[:] = before
