"""Several policies for the memory of one: a frozen backbone, an adapter and a value head for each.

Policies read their rows each in a pass of its own, or all of them in one (`one_pass`), every row with its
policy's adapter (`agents/policies/by_row.py`).

Knows no games.

Shapes: none.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agents.batch import Rows, stack
from agents.policies import adapters, by_row
from agents.policies.base import Joint, Policy
from agents.policies.causal_lm import VALUE_HEAD, CausalLMPolicy
from agents.policies.loading import load_model
from agents.policies.lora_config import SETTINGS, Config
from agents.policies.narrow import Wanted

BACKBONE = "backbone.json"
REFERENCE = "reference"
PLAIN = Config()


class LoraPolicy(CausalLMPolicy):
    """One adapter and one value head on a backbone that belongs to the team: made by `LoraTeam`.

    `parameters()` are the value head's and the adapter's, layer by layer in alphabetical order. The backbone
    is no submodule.
    """

    def __init__(self, name: str, team: "LoraTeam", **options: Any) -> None:
        self._team = (team,)
        super().__init__(name, team.model, team.tokenizer, **options)
        del self._modules["model"]
        pairs = adapters.factors(team.model, name)
        self._adapters = (name,) if pairs else ()
        self.adapter = nn.ModuleDict({layer.replace(".", "/"): pair for layer, pair in pairs.items()})
        self.value_head.to(team.device)

    @classmethod
    def load(cls, name: str, path: str | Path, *, device: str = "cpu", **options: Any) -> "LoraPolicy":
        """A team of one; see `LoraTeam.load`."""
        return LoraTeam.load([name], path, device=device, **options).policies[name]

    @property
    def model(self) -> Any:
        """The backbone with everybody's adapters; which of them act is said by `reading`."""
        return self._team[0].model

    @property
    def joint(self) -> Joint | None:  # type: ignore[override]
        """The team's, where it reads in one pass."""
        team = self._team[0]
        return team.states if team.one_pass else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """This policy's adapter acts and no other; the reference of a fresh team has none."""
        with super().reading(), self._team[0].switch.on(self._adapters):
            yield

    def head_parameters(self) -> Sequence[nn.Parameter]:
        """Those of the value head: the language-model head is the backbone's and frozen."""
        return self.value_parameters()

    def save(self, folder: str | Path, *, value_head: bool = True) -> None:
        """As a PEFT folder: adapter, tokenizer, value head, and which backbone they belong to."""
        team = self._team[0]
        adapters.write(self.model, self.name, team.settings, folder)
        self.tokenizer.save_pretrained(folder)
        told = {"path": team.settings.base_model_name_or_path, "sha256": team.backbone_sha256}
        (Path(folder) / BACKBONE).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        if value_head:
            save_file(self.value_head.state_dict(), Path(folder) / VALUE_HEAD)

    def save_merged(self, folder: str | Path) -> None:
        """One whole model in plain `from_pretrained` layout, float32, the value head beside it.

        The adapter is merged into a copy of the backbone read anew from its folder, in main memory; of a
        backbone in 4 bits that is the unrounded one, so logits differ by the rounding.
        """
        with TemporaryDirectory() as parts:
            self.save(parts)
            whole, tokenizer = load_model(parts)
        CausalLMPolicy(self.name, whole, tokenizer, value_head=self.value_head).save(folder)

    def restore(self, folder: str | Path) -> None:
        """Take what `save` wrote, in place; refused on another backbone than it was saved from."""
        self._team[0].check_backbone(folder)
        adapters.read(self.model, self.name, folder)
        self.value_head.load_state_dict(load_file(Path(folder) / VALUE_HEAD))


class LoraTeam:
    """Policies that share a backbone, and the reference they came from: the same backbone, adapters off.

    Where training starts from an adapter, the reference keeps a frozen copy of it. What needs a gradient is
    said once, here, and never changes.
    """

    def __init__(
        self,
        names: Sequence[str],
        model: Any,
        tokenizer: Any,
        *,
        path: str | Path,
        config: Config = PLAIN,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """`model` is the backbone, loaded from `path`; `options` are those of `CausalLMPolicy`."""
        for name in names:
            if name == REFERENCE or "." in name or list(names).count(name) > 1:
                raise ValueError(
                    f"a LoRA team cannot name a policy {name!r} here; give every policy a name of its own, "
                    f"without dots and not {REFERENCE!r}"
                )
        self.model, self.tokenizer, self.path = model, tokenizer, path
        base = str(Path(path).resolve()) if Path(path).exists() else str(path)
        self.settings = adapters.settings(model, config, base=base)
        adapted = [*names, REFERENCE] if config.adapter is not None else list(names)
        for name in adapted:
            adapters.add(model, name, self.settings, seed=seed)
            if config.adapter is not None:
                adapters.read(model, name, config.adapter)
        self.switch = adapters.Switch(model)
        on_cuda = config.one_pass == "auto" and self.device.type == "cuda"
        self.one_pass = config.one_pass == "yes" or on_cuda
        """Whether rows of several policies are read in one pass."""
        model.requires_grad_(False)
        self.policies = {name: LoraPolicy(name, self, **options) for name in names}
        self.reference = LoraPolicy(REFERENCE, self, **options).requires_grad_(False)
        for policy in self.policies.values():
            policy.requires_grad_(True)
            if config.adapter is not None and (config.adapter / VALUE_HEAD).exists():
                policy.value_head.load_state_dict(load_file(config.adapter / VALUE_HEAD))
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
        config: Config = PLAIN,
        **options: Any,
    ) -> Self:
        """Policies called `names` on the model in a folder or under a hub name.

        Adapters start as functions of `seed` (0) and the policy's name, and change nothing before the first
        step. `options` are those of `CausalLMPolicy`.
        """
        if (Path(path) / SETTINGS).exists():
            raise ValueError(
                f"{path} is an adapter; name the model it belongs to as backbone, and start from the adapter "
                "with lora.adapter"
            )
        four_bit = config.four_bit == "yes" or (config.four_bit == "auto" and device.startswith("cuda"))
        load = load_four_bit if four_bit else load_model
        return cls(names, *load(path, device=device), path=path, config=config, **options)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    def states(self, asked: Sequence[tuple[Policy, Rows]]) -> list[Tensor]:
        """`deciding_states` of each of the team's policies on its rows, in one pass of the backbone."""
        rows = stack(Rows, [part for _, part in asked])
        wanted = Wanted.of(rows.tokens(), rows.deciding())
        owner_B = torch.cat([torch.full_like(part.prompt_length_B, i) for i, (_, part) in enumerate(asked)])
        acting = partial(
            by_row.acting,
            self.model,
            self.switch,
            [self._adapters_of(policy) for policy, _ in asked],
            owner_B[:, None].expand(wanted.shape),
            wanted,
            self.reference.token_wise,
        )
        state_KD = self.reference.states_of(rows, wanted, around=acting)
        return list(state_KD.split([int(part.response_length_B.sum()) for _, part in asked]))

    def _adapters_of(self, policy: Policy) -> Sequence[str]:
        if policy is not self.reference and policy is not self.policies.get(policy.name):
            raise ValueError(
                f"policy {policy.name!r} is none of this team; there are {', '.join(self.policies)}"
            )
        adapters: Sequence[str] = policy._adapters
        return adapters

    @cached_property
    def backbone_sha256(self) -> str:
        """Of the backbone's safetensors files, one after another in the order of their names."""
        digest = hashlib.sha256()
        for file in sorted(_folder(self.path).glob("*.safetensors")):
            if file.name != VALUE_HEAD:
                with file.open("rb") as stream:
                    while block := stream.read(1 << 20):
                        digest.update(block)
        return digest.hexdigest()

    def check_backbone(self, folder: str | Path) -> None:
        """Refuse an adapter that was saved from other weights than these."""
        told = json.loads((Path(folder) / BACKBONE).read_text(encoding="utf-8"))
        if told["sha256"] != self.backbone_sha256:
            raise ValueError(
                f"{folder} belongs to the backbone {told['path']} with sha256 {told['sha256'][:12]}; "
                f"{self.path} has {self.backbone_sha256[:12]}; name the model this adapter was trained on"
            )


def _folder(path: str | Path) -> Path:
    """Where the files of a model lie, once it has been loaded: its folder, or the hub's cache."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(path), local_files_only=True))


def load_four_bit(path: str | Path, *, device: str) -> tuple[Any, Any]:
    """Model and tokenizer with the linear layers of the trunk in NF4; products in bfloat16."""
    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise ValueError(f"lora.four_bit needs a CUDA device and device is {device!r}; take one or say no")
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise ValueError("lora.four_bit needs bitsandbytes; pip install 'cory[quant]'") from error
    return _four_bit(path, device=device)


def _four_bit(path: str | Path, *, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    quantised = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=torch.float32,
        quantization_config=quantised,
        device_map={"": device},
        attn_implementation="sdpa",
        use_safetensors=True,
        trust_remote_code=False,
    )
    return model, tokenizer
