"""LoRA teams: several policies on one frozen backbone, with an adapter and a value head for each.

Knows no games.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cory import pocket
from cory.policies import lora_adapters
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import (
    base_of,
    check_device,
    head_shape,
    holds_tokenizer,
    id_count,
    load_model,
    load_tokenizer,
    load_value_head,
    merge_adapter,
)
from cory.policies.lora_config import (
    BACKBONE,
    LORA_B,
    VALUE_HEAD,
    LoRAConfig,
    shared_name,
    weights_sha256,
)
from cory.policies.precision import Precision, product_dtype, resolved, store_frozen

REFERENCE = "reference"
DEFAULT = LoRAConfig()


class LoraPolicy(CausalLMPolicy):
    """One adapter and one value head on a backbone that belongs to the team: made by `LoraTeam`.

    `parameters()` are those of the value head and the adapter, layer by layer in alphabetical order. The
    backbone is no submodule.
    """

    def __init__(self, name: str, team: "LoraTeam", **options: Any) -> None:
        self._team = (team,)
        pairs = lora_adapters.factors(team.model, name)
        self.adapter_name = name
        self._adapters = (name,) if pairs else ()
        super().__init__(name, team.model, team.tokenizer, **options)
        del self._modules["model"]
        self.adapter = nn.ModuleDict({layer.replace(".", "/"): pair for layer, pair in pairs.items()})
        self.value_head.to(team.model.device)

    def _own_format(self, model: Any) -> Any:
        """The backbone as the team stores it."""
        return model

    @property
    def model(self) -> Any:
        """The backbone with the adapters of all policies; `forward_context` activates this policy's."""
        return self._team[0].model

    def never_sharded(self) -> list[nn.Parameter]:
        """The adapters of all policies."""
        return [weight for name, weight in self.model.named_parameters() if ".lora_" in name]

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """As in every causal LM, with this policy's adapter active and no other."""
        with super().forward_context(), self._team[0].switch.on(self._adapters):
            yield

    @property
    def _joined(self) -> tuple[str, ...]:
        """The adapters beside its own that are active when this policy acts."""
        return tuple(name for name in self._adapters if name != self.adapter_name)

    @contextmanager
    def joined(self, policies: Sequence[Policy]) -> Iterator[None]:
        """Inside, what the adapters of `policies`, all of this team, add to the backbone is added up."""
        if any(self._team[0].policies.get(policy.name) is not policy for policy in policies):
            raise ValueError(f"policies of several teams cannot act together with {self.name!r}")
        before = self._adapters
        self._adapters = tuple(policy.name for policy in policies)
        try:
            yield
        finally:
            self._adapters = before

    def head_parameters(self) -> Sequence[nn.Parameter]:
        """Parameters of the value head: the language-model head belongs to the frozen backbone."""
        return self.value_parameters()

    def distribution_weights(self) -> dict[str, Tensor]:
        """The adapter's parameters; none where it adds nothing to the backbone, as before the first step.

        Where several are joined, those of all.
        """
        weights = super().distribution_weights()
        for other in self._joined:
            weights |= {f"{other}/{key}": w for key, w in lora_adapters.tensors(self.model, other).items()}
        adds = any(bool(weight.any()) for name, weight in weights.items() if LORA_B in name)
        return weights if adds else {}

    def save(self, folder: str | Path) -> None:
        """Write a PEFT folder: adapter, tokenizer, value head, and the backbone they belong to.

        `base_model_name_or_path` is the hub name, the name of an embedded model (`pocket`), which PEFT
        does not know, or the absolute path of a folder; backbone.json adds the sha256 of its weights.
        """
        team = self._team[0]
        lora_adapters.write(self.model, self.adapter_name, team.settings, folder)
        self.tokenizer.save_pretrained(folder)
        backbone = {"path": team.settings.base_model_name_or_path, "sha256": team.backbone_sha256}
        (Path(folder) / BACKBONE).write_text(json.dumps(backbone, indent=1) + "\n", encoding="utf-8")
        save_file(self.value_head.state_dict(), Path(folder) / VALUE_HEAD)

    def save_merged(self, folder: str | Path) -> None:
        """Write one whole model in plain `from_pretrained` layout, float32, with the value head beside it.

        The adapter is merged in main memory into a copy of the backbone loaded from its folder; a 4-bit
        backbone is merged unquantised, so logits differ by the quantisation error.
        """
        with TemporaryDirectory() as parts:
            self.save(parts)
            whole, tokenizer = load_model(parts)
            for other in self._joined:
                lora_adapters.write(self.model, other, self._team[0].settings, parts)
                whole = merge_adapter(whole, parts)
        CausalLMPolicy(self.name, whole, tokenizer, value_head=self.value_head).save(folder)

    def restore(self, folder: str | Path) -> None:
        """Load what `save` wrote, in place; ValueError on a backbone with other weights."""
        self._team[0].check_backbone(folder)
        lora_adapters.read(self.model, self.adapter_name, folder)
        load_value_head(self.value_head, Path(folder) / VALUE_HEAD)


class LoraTeam:
    """Policies that share a backbone, and their reference: the same backbone with adapters off.

    If training starts from an adapter, the reference keeps a frozen copy of it. `requires_grad` is set once,
    here, and never changes.
    """

    def __init__(
        self,
        names: Sequence[str],
        model: Any,
        tokenizer: Any,
        *,
        path: str | Path,
        config: LoRAConfig = DEFAULT,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """`model` is the backbone, loaded from `path`; `options` are those of `CausalLMPolicy`."""
        precision = options.get("precision", "auto")
        store_frozen(model, product_dtype(precision, model.device))
        for name in names:
            if name == REFERENCE or "." in name or list(names).count(name) > 1:
                raise ValueError(
                    f"a LoRA team cannot name a policy {name!r} here; give every policy a name of its own, "
                    f"without dots and not {REFERENCE!r}"
                )
        self.model, self.tokenizer, self.path = model, tokenizer, pocket.lm_path(path)
        self.settings = lora_adapters.settings(model, config, base=shared_name(self.path))
        adapted = [*names, REFERENCE] if config.adapter is not None else list(names)
        for name in adapted:
            lora_adapters.add(model, name, self.settings, seed=seed)
            if config.adapter is not None:
                lora_adapters.read(model, name, config.adapter)
        if resolved(precision, model.device) == "bfloat16":
            lora_adapters.add_in_float32(model)
        self.switch = lora_adapters.Switch(model)
        model.requires_grad_(False)
        self.policies = {name: LoraPolicy(name, self, **options) for name in names}
        self.reference = LoraPolicy(REFERENCE, self, **options).requires_grad_(False)
        for policy in self.policies.values():
            policy.requires_grad_(True)
            if config.adapter is not None and (head := config.adapter / VALUE_HEAD).exists():
                load_value_head(policy.value_head, head)
        for policy in (*self.policies.values(), self.reference):
            policy.set_reference(self.reference)
        if config.adapter is not None and (config.adapter / BACKBONE).exists():
            self.check_backbone(config.adapter)

    @classmethod
    def load(
        cls,
        names: Sequence[str],
        path: str | Path,
        *,
        device: str = "cpu",
        config: LoRAConfig = DEFAULT,
        precision: Precision = "auto",
        **options: Any,
    ) -> Self:
        """Policies on a folder, an embedded model or a hub name; `options` are the constructor's."""
        if base_of(path) is not None:
            raise ValueError(
                f"{path} is an adapter; name its base model as backbone, and start from the adapter "
                "with lora.adapter"
            )
        check_device(device)
        model, tokenizer = load_model(
            path,
            device=device,
            frozen=product_dtype(precision, torch.device(device)),
            four_bit=precision if config.four_bit == "yes" else None,
        )
        if config.adapter is not None and holds_tokenizer(config.adapter):
            tokenizer = load_tokenizer(config.adapter)
            ids, rows = id_count(tokenizer), head_shape(model)[0]
            if ids > rows:
                raise ValueError(
                    f"lora.adapter {config.adapter} comes with {ids} tokens, {path} with {rows}; "
                    "train policy.kind causal_lm on it, which adds them"
                )
        try:
            return cls(names, model, tokenizer, path=path, config=config, precision=precision, **options)
        except ValueError as error:
            if config.adapter is None and not config.targets:  # all of some architectures PEFT cannot adapt
                error.add_note("or name fewer layers by lora.targets, such as q_proj v_proj")
            raise

    @cached_property
    def backbone_sha256(self) -> str:
        """SHA-256 of the backbone's weights, in their folder or file or in the hub's cache."""
        from huggingface_hub import snapshot_download

        path = Path(self.path)
        return weights_sha256(
            path if path.exists() else Path(snapshot_download(str(path), local_files_only=True))
        )

    def check_backbone(self, folder: str | Path) -> None:
        """Raise ValueError for an adapter that belongs to a backbone with other weights."""
        saved = json.loads((Path(folder) / BACKBONE).read_text(encoding="utf-8"))
        if saved["sha256"] != self.backbone_sha256:
            raise ValueError(
                f"{folder} belongs to the backbone {saved['path']} with sha256 {saved['sha256'][:12]}; "
                f"{self.path} has {self.backbone_sha256[:12]}; name the model this adapter was trained on"
            )
