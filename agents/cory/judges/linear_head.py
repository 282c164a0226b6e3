"""Sequence classifier made of the first layers of a language model and a linear head on their mean state.

Shapes: B texts, T tokens, D width, K labels.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cory import pocket

SETTINGS, WEIGHTS = "config.json", "model.safetensors"
KIND = "linear_head"


class LinearHead(nn.Module):
    """Logits (0, w . m + b) of (negative, positive), where m is the mean over the tokens of the last states.

    `trunk` is frozen, and the head's few weights are all that its folder holds: the language model is named
    there, and loaded from its own.
    """

    def __init__(self, trunk: Any, head: nn.Linear | None = None) -> None:
        super().__init__()
        self.trunk, self.config = trunk, trunk.config
        self.config.id2label = {0: "negative", 1: "positive"}
        self.head = head or nn.Linear(trunk.config.hidden_size, 1)
        self.requires_grad_(False)

    @classmethod
    def of_layers(cls, model: str, layers: int) -> "LinearHead":
        """The first `layers` layers of a language model, a name or a folder, with a head not yet fitted."""
        from transformers import AutoModel

        trunk = AutoModel.from_pretrained(
            pocket.lm_path(model),
            num_hidden_layers=layers,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
        )
        for parameter in trunk.parameters():  # out of the mapped file, whose header leaves them unaligned
            parameter.data = parameter.data.clone()
        return cls(trunk.eval())

    @classmethod
    def load(cls, folder: Path) -> "LinearHead":
        """What `save` wrote; ValueError where its language model is not on this machine."""
        from safetensors.torch import load_file

        settings = settings_of(folder)
        judge = cls.of_layers(settings["model"], settings["layers"])
        judge.head.load_state_dict(load_file(folder / WEIGHTS))
        return judge

    def save(self, folder: Path, *, model: str) -> None:
        """Write the head, and the name and number of layers of its language model."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        settings = {"kind": KIND, "model": model, "layers": self.config.num_hidden_layers}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        save_file(self.head.state_dict(), folder / WEIGHTS)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The last states [B, T, D]."""
        states_BTD: Tensor = self.trunk(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state
        return states_BTD

    def mean(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean of the last states over the tokens of each text [B, D]."""
        states_BTD, mask_BT1 = self.states(input_ids, attention_mask), attention_mask[:, :, None]
        mean_BD: Tensor = (states_BTD * mask_BT1).sum(1) / mask_BT1.sum(1)
        return mean_BD

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_other: Tensor) -> Any:
        """Logits [B, K] as a sequence classifier of transformers returns them."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        mean_BD = self.mean(input_ids, attention_mask)
        return SequenceClassifierOutput(logits=nn.functional.pad(self.head(mean_BD), (1, 0)))


def settings_of(folder: str | Path) -> dict[str, Any]:
    """The settings of a folder that holds such a head; empty for any other."""
    path = Path(folder) / SETTINGS
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return settings if settings.get("kind") == KIND else {}
