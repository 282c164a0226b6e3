"""Any Hugging Face causal LM, its class unmodified, with a linear value head on the last hidden layer.

Knows no games.

Shapes: B rows, P prompt tokens, L tokens of prompt + response, K chosen tokens, D width, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agents.batch import Rows
from agents.policies.base import Policy

VALUE_HEAD = "value_head.safetensors"


class CausalLMPolicy(Policy):
    """Full fine-tuning of a causal LM. Dropout is off: what is scored is what was sampled."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 1.0,
        value_head: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.name, self.temperature = name, temperature
        self.model = model.float().eval()
        self.tokenizer = tokenizer
        self.value_head = value_head or zero_value_head(model.config.hidden_size)
        self.vocab_size = min(len(tokenizer), model.get_output_embeddings().weight.shape[0])
        self.eos = eos_ids(model, tokenizer)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self.eos)
        self.window = getattr(model.config, "max_position_embeddings", None)

    @classmethod
    def load(
        cls, name: str, path: str | Path, *, device: str = "cpu", temperature: float = 1.0
    ) -> "CausalLMPolicy":
        """From a local folder or a hub name; with its value head where the folder holds one."""
        model, tokenizer = load_model(path, device=device)
        policy = cls(name, model, tokenizer, temperature=temperature)
        if (Path(path) / VALUE_HEAD).exists():
            policy.value_head.load_state_dict(load_file(Path(path) / VALUE_HEAD))
        return policy.to(device)

    def save(self, folder: str | Path, *, value_head: bool = True) -> None:
        """In plain `from_pretrained` layout, the value head beside it; float32."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if value_head:
            save_file(self.value_head.state_dict(), Path(folder) / VALUE_HEAD)

    def restore(self, folder: str | Path) -> None:
        """Take the weights and the value head that `save` wrote, in place."""
        self.model.load_state_dict(load_file(Path(folder) / "model.safetensors"), strict=False)
        self.value_head.load_state_dict(load_file(Path(folder) / VALUE_HEAD))

    def trunk(self, **inputs: Any) -> Any:
        """The transformer without its head; training, scoring and decoding all read through here."""
        return self.model.base_model(**inputs)

    def deciding_states(self, rows: Rows) -> Tensor:
        hidden_BLD = self.trunk(input_ids=rows.joined(), use_cache=False).last_hidden_state
        return hidden_BLD.flatten(0, 1)[rows.deciding()]

    def logits(self, state_KD: Tensor) -> Tensor:
        logits_KV = self.model.get_output_embeddings()(state_KD)[:, : self.vocab_size].float()
        return logits_KV if self.temperature == 1.0 else logits_KV / self.temperature

    def values(self, state_KD: Tensor) -> Tensor:
        return self.value_head(state_KD).squeeze(-1).float()

    def head_parameters(self) -> Sequence[nn.Parameter]:
        return [*self.model.get_output_embeddings().parameters(), *self.value_head.parameters()]

    def value_parameters(self) -> Sequence[nn.Parameter]:
        """Those of the value head, which may learn at a rate of their own."""
        return list(self.value_head.parameters())

    def decoder(self) -> "CachedDecoder":
        return CachedDecoder(self)


class CachedDecoder:
    """Left-pads the prompts so that every row's next token stands in one column; positions are its own."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        self.policy = policy

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor) -> Tensor:
        P = int(prompt_length_B.max())
        at_BP = torch.arange(P, device=prompt_BP.device) - (P - prompt_length_B)[:, None]
        self.attend_BL = (at_BP >= 0).long()
        self.position_B = prompt_length_B - 1
        self.cache: Any = None
        return self._read(prompt_BP.gather(1, at_BP.clamp(min=0)) * self.attend_BL, at_BP.clamp(min=0))

    def step(self, token_B: Tensor) -> Tensor:
        self.attend_BL = torch.cat([self.attend_BL, torch.ones_like(token_B)[:, None]], dim=1)
        self.position_B = self.position_B + 1
        return self._read(token_B[:, None], self.position_B[:, None])

    def _read(self, ids_BX: Tensor, position_BX: Tensor) -> Tensor:
        told = self.policy.trunk(
            input_ids=ids_BX,
            attention_mask=self.attend_BL,
            position_ids=position_BX,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache = told.past_key_values
        return self.policy.logits(told.last_hidden_state[:, -1])


def zero_value_head(width: int) -> nn.Linear:
    """A value head that expects 0 until it has learned otherwise."""
    head = nn.Linear(width, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a response: the generation config's (one or several) and the tokenizer's."""
    told = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = set(told if isinstance(told, list) else [] if told is None else [told])
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    if not ids:
        raise ValueError(
            "neither the tokenizer nor the generation config of this model names an EOS token; set one"
        )
    return frozenset(ids)


def load_model(path: str | Path, *, device: str = "cpu") -> tuple[Any, Any]:
    """Model (float32) and tokenizer of a local folder or a hub name; refused at once if incomplete."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(path)
    looks_local = folder.exists() or str(path).startswith((".", "/", "~")) or str(path).count("/") > 1
    if looks_local:
        if not folder.is_dir():
            raise ValueError(
                f"there is no model folder {path}; give a folder in from_pretrained layout or a hub name"
            )
        if not (folder / "config.json").exists():
            raise ValueError(
                f"the folder {path} holds no config.json; give a folder in from_pretrained layout"
            )
        if not any(folder.glob("*.safetensors")):
            raise ValueError(
                f"the folder {path} holds no weights (*.safetensors); save the model there once more"
            )
    attention = "eager" if device == "cpu" else "sdpa"
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation=attention, use_safetensors=True
        )
    except OSError as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"the model {path} cannot be loaded ({first}); give a model folder or a reachable hub name"
        ) from error
    return model.to(device), tokenizer
