"""Load models and tokenizers from folders or hub names, with checks before any training.

Code shipped with a model is never run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


def load_model(path: str | Path, *, device: str = "cpu") -> tuple[Any, Any]:
    """Load model (float32) and tokenizer from a folder or the hub; adapters are merged into their base."""
    from transformers.utils.peft_utils import find_adapter_config_file

    check_device(device)
    folder = Path(path)
    looks_local = folder.exists() or str(path).startswith((".", "/", "~")) or str(path).count("/") > 1
    if looks_local and not folder.is_dir():
        raise ValueError(
            f"there is no model folder {path}; give a folder in from_pretrained layout or a hub name"
        )
    if find_adapter_config_file(str(path), local_files_only=looks_local) is not None:
        return _load_adapted(path, device=device)
    if looks_local:
        if not (folder / "config.json").exists():
            raise ValueError(
                f"the folder {path} holds no config.json; give a folder in from_pretrained layout"
            )
        _check_weights(folder, "*.safetensors")
    return _load_whole(path, device=device)


def check_device(device: str) -> None:
    """Raise ValueError for a device this machine lacks; there is no fallback to another."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {device!r} cannot be used here ({_first_line(error)}); name one this machine has: cpu"
            + (", cuda" if torch.cuda.is_available() else "")
        ) from error


def head_shape(model: Any) -> tuple[int, int]:
    """Return rows and columns of the language-model head: logits per token, and the width of its inputs.

    They are those of the weights: configurations name the width differently, and OPT's `hidden_size` differs
    from it.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} has no language-model head; give a model that AutoModelForCausalLM opens"
        )
    rows, width = head.weight.shape
    return rows, width


def eos_ids(model: Any, tokenizer: Any, *, vocab_size: int) -> frozenset[int]:
    """Return every id that ends a response: the generation config's (one or several) and the tokenizer's."""
    eos = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = {*(eos if isinstance(eos, list) else [eos]), tokenizer.eos_token_id} - {None}
    if not ids:
        raise ValueError(
            "neither the tokenizer nor the generation config of this model names an EOS token; set one"
        )
    if min(ids) >= vocab_size:
        raise ValueError(
            f"the EOS ids {sorted(ids)} lie outside the vocabulary of {vocab_size}: no response could end; "
            "name an EOS token of the vocabulary in the generation config or the tokenizer"
        )
    return frozenset(id for id in ids if id < vocab_size)


def pad_id(tokenizer: Any, *, vocab_size: int, eos: frozenset[int]) -> int:
    """Return the tokenizer's pad id if the model's vocabulary has it, else an EOS id.

    An EOS that was chosen is distinguished from padding by lengths, never by ids.
    """
    pad: int | None = tokenizer.pad_token_id
    return pad if pad is not None and pad < vocab_size else min(eos)


def _load_whole(path: str | Path, *, device: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM

    with _one_paragraph(f"the model {path}"):
        tokenizer = _tokenizer(path)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32,
            attn_implementation="eager" if device == "cpu" else "sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    model, report = loaded
    if report["missing_keys"]:
        lost = sorted(report["missing_keys"])
        raise ValueError(
            f"the weights of the model {path} lack {len(lost)} tensors of {type(model).__name__}, such as "
            f"{lost[0]}; save the model there once more, with its language-model head"
        )
    return own_memory(model.to(device)), tokenizer


def own_memory(model: Any) -> Any:
    """Copy CPU weights out of the memory-mapped file, whose header leaves them unaligned.

    Matrix products are up to 1.4 times as fast with aligned weights.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()
    return model


def _load_adapted(path: str | Path, *, device: str) -> tuple[Any, Any]:
    """Load the base model that an adapter names and merge the adapter; all weights are trainable."""
    from peft import PeftConfig, PeftModel

    folder = Path(path)
    if folder.is_dir():
        _check_weights(folder, "adapter_model.safetensors")
    with _one_paragraph(f"the adapter {path}"):
        base = PeftConfig.from_pretrained(str(path)).base_model_name_or_path
    if not base:
        raise ValueError(
            f"the adapter {path} names no base model; set base_model_name_or_path in its adapter_config.json"
        )
    with _one_paragraph(f"the adapter {path}"):
        model, tokenizer = load_model(base, device=device)
        merged = PeftModel.from_pretrained(model, str(path)).merge_and_unload()
        if (folder / "tokenizer_config.json").exists():
            tokenizer = _tokenizer(path)
    return merged.requires_grad_(True), tokenizer


def _tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=False)


def _check_weights(folder: Path, pattern: str) -> None:
    if not any(folder.glob(pattern)):
        raise ValueError(f"the folder {folder} holds no weights ({pattern}); save the model there once more")


@contextmanager
def _one_paragraph(what: str) -> Iterator[None]:
    """Turn the libraries' loading errors into one ValueError that says what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{what} cannot be loaded ({_first_line(error)}); give a model folder or a reachable hub name"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
