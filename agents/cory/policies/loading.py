"""Load models and tokenizers from folders, GGUF files or hub names, with checks before any training.

Code shipped with a model is never run.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cory import pocket
from cory.policies import gguf
from cory.policies.lora_config import BACKBONE, SETTINGS, check_embedded
from cory.policies.precision import Precision, four_bit_options, freeze_format, store_frozen
from cory.runtime import hub
from cory.runtime.device import default_device
from cory_env.nearest import did_you_mean_path

TOKENIZER = ("tokenizer*", "vocab*", "*.model")
"""Files of which a folder with a tokenizer holds some."""


def load_model(
    path: str | Path,
    *,
    device: str = "cpu",
    frozen: torch.dtype = torch.float32,
    four_bit: Precision | None = None,
    merge: bool = True,
) -> tuple[Any, Any]:
    """Load model (float32) and tokenizer; adapters are merged into their base, or with `merge` off beside it.

    `frozen` is the type that a model is stored in that will not be trained (`store_frozen`). With `four_bit`
    the trunk's linear layers are in NF4, and multiplied in the dtype of that precision. `path` is a
    folder, a GGUF file, the name of a model that `cory.pocket` knows, or a hub name. While the hub cannot be
    reached, a hub name is looked up in its cache.
    """
    check_device(device)
    with hub.quiet():
        place = _located(path)
        if file_of(place, SETTINGS) is not None:
            return _load_adapted(place, device=device, merge=merge)
        if Path(place).is_dir():
            if not (Path(place) / "config.json").exists():
                raise ValueError(
                    f"the folder {place} holds no config.json; give a folder in from_pretrained layout"
                )
            _check_weights(Path(place), "*.safetensors")
        if four_bit is None:
            return _load_whole(place, device=device, frozen=frozen)
        options = four_bit_options(four_bit, torch.device(device))
        model, tokenizer = _load_whole(place, device=device, device_map={"": device}, **options)
    freeze_format(model)
    return model, tokenizer


def load_tokenizer(path: str | Path) -> Any:
    """Load the tokenizer of a model, found as by `load_model`; no weights are read."""
    with hub.quiet():
        place = _located(path)
        if (base := base_of(place)) is not None and not holds_tokenizer(place):
            return load_tokenizer(base)
        with _one_paragraph(f"the tokenizer of the model {path}"):
            return _tokenizer(place)


def without_weights(path: str | Path) -> Any:
    """The model of a configuration, an adapter's base model, on the meta device; no weights are read."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    with hub.quiet():
        located = _located(path)
        if (base := base_of(located)) is not None:
            return without_weights(base)
        with _one_paragraph(f"the model {path}"), torch.device("meta"):
            place, options = gguf.source(located)
            config = AutoConfig.from_pretrained(place, trust_remote_code=False, **options)
            model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            return model_class(config)


def check_device(device: str) -> None:
    """Raise ValueError for a device this machine lacks; there is no fallback to another."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {device!r} cannot be used here ({_first_line(error)}); name one this machine has: cpu"
            + (f", {accelerator}" if (accelerator := default_device()) != "cpu" else "")
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


def _located(path: str | Path) -> str | Path:
    """Return the folder or file of a model, or its hub name while the hub can be reached; else ValueError."""
    path = pocket.lm_path(path)
    local = Path(path)
    if local.is_file():
        gguf.check_file(local)
        return path
    if hub.can_only_be_a_path(path) and not local.is_dir():
        raise ValueError(
            f"there is no model folder {path} and no such GGUF file; give a folder in from_pretrained "
            "layout, a GGUF file or a hub name" + did_you_mean_path(path)
        )
    return hub.located(path)


def _load_whole(
    path: str | Path, *, device: str, frozen: torch.dtype = torch.float32, **options: Any
) -> tuple[Any, Any]:
    """Load a model that is no adapter; `options` are those of `from_pretrained`."""
    from transformers import AutoModelForCausalLM, GgufConfig

    damaged = {"advice": "fetch the file again, or give a model folder"} if gguf.is_gguf(path) else {}
    with _one_paragraph(f"the model {path}", **damaged):
        tokenizer = _tokenizer(path)
        place, file = gguf.source(path)
        unpacked = {"quantization_config": GgufConfig(dequantize=True)} if file else {}
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place,
            dtype=torch.float32,
            attn_implementation="eager" if device == "cpu" else "sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **file,
            **unpacked | options,
        )
    model, report = loaded
    if file:
        gguf.forget_format(model)
    if report["missing_keys"]:
        lost = sorted(report["missing_keys"])
        raise ValueError(
            f"the weights of the model {path} lack {len(lost)} tensors of {type(model).__name__}, such as "
            f"{lost[0]}; save the model there once more, with its language-model head"
        )
    if "device_map" not in options:
        store_frozen(model, frozen)  # before it takes memory of the device
        model.to(device)
    return own_memory(model), tokenizer


def own_memory(model: Any) -> Any:
    """Copy CPU weights out of the memory-mapped file, whose header leaves them unaligned.

    Matrix products are up to 1.4 times as fast with aligned weights.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.is_floating_point():  # 4-bit weights are new tensors
            parameter.data = parameter.data.clone()
    return model


def _load_adapted(path: str | Path, *, device: str, merge: bool) -> tuple[Any, Any]:
    """Load the base model that an adapter names, with the adapter; merged, all weights are trainable."""
    if Path(path).is_dir():
        _check_weights(Path(path), "adapter_model.safetensors")
    base = base_of(path)
    assert base is not None
    if (backbone := file_of(path, BACKBONE)) is not None:
        check_embedded(base, backbone)
    with _one_paragraph(
        f"the adapter {path}", "name its base in base_model_name_or_path of its adapter_config.json"
    ):
        model, tokenizer = load_model(base, device=device)
        if holds_tokenizer(path):
            tokenizer = _tokenizer(path)
            ids = id_count(tokenizer)
            if ids > head_shape(model)[0]:  # tokens were added when the adapter was trained
                model.resize_token_embeddings(ids)
    if merge:
        return merge_adapter(model, path), tokenizer
    from cory.policies.lora_adapters import add_in_float32  # PEFT takes seconds to import

    model = _adapted(model, path).get_base_model()
    add_in_float32(model)
    return model, tokenizer


def merge_adapter(model: Any, path: str | Path) -> Any:
    """Add the adapter of a PEFT folder to the weights of its base model; the model."""
    return merged(_adapted(model, path))


def _adapted(model: Any, path: str | Path) -> Any:
    """The PEFT model of a base model and the adapter in a folder."""
    from peft import PeftModel

    with _one_paragraph(f"the adapter {path}", "train it on the base model that it names"):
        return PeftModel.from_pretrained(model, str(path))


@torch.no_grad()
def merged(adapted: Any) -> Any:
    """The base model of a PEFT model, which it changes, with the adapter in its weights, all trainable.

    ValueError for adapters that no weights can hold, and if the merged model is not the adapted one.
    """
    adapted.eval()
    rows = head_shape(adapted)[0]
    step = max(1, rows // 32)
    ids_1L = torch.arange(0, rows, step, device=adapted.device)[None, -32:]
    want = adapted(input_ids=ids_1L, use_cache=False, return_dict=True).logits
    kind = f"{type(adapted.get_base_model()).__name__} with {adapted.active_peft_config.peft_type.value}"
    _untie(adapted.get_base_model())
    try:
        model = adapted.merge_and_unload()
    except (AttributeError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"the adapter of {kind} cannot be merged into its base ({_first_line(error)}), which training "
            "starts from; take one whose weights can be, such as LoRA"
        ) from error
    apart = (model(input_ids=ids_1L, use_cache=False, return_dict=True).logits - want).abs().max()
    if not apart <= 1e-3 * (1 + want.abs().max()):
        raise ValueError(
            f"{kind}: merging the adapter into its base moves logits by up to {apart:.2g}; merge it with "
            "PEFT into a copy of the base whose output you have compared, and give the folder of that"
        )
    if model.get_input_embeddings().weight is not model.get_output_embeddings().weight:
        model.config.tie_word_embeddings = False  # else they would be tied when the model is loaded again
    return model.requires_grad_(True)


def _untie(model: Any) -> None:
    """Give embedding and head weights of their own where they are tied and an adapter changes one of them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    adapted = isinstance(embedding, BaseTunerLayer) or isinstance(head, BaseTunerLayer)
    if adapted and embedding.weight is head.weight:
        layer = head.get_base_layer() if isinstance(head, BaseTunerLayer) else head
        layer.weight = torch.nn.Parameter(head.weight.clone())


def load_value_head(value_head: torch.nn.Linear, path: Path) -> None:
    """Load a policy's value head from its file, in place."""
    from safetensors.torch import load_file

    with _one_paragraph(f"the value head {path}", "remove the file to start with a new one, or restore it"):
        value_head.load_state_dict(load_file(path))


def file_of(path: str | Path, name: str) -> Path | None:
    """A file beside a model's weights, in its folder or on the hub (from its cache); None without it.

    ValueError for a model that is nowhere, or that the hub does not give.
    """
    from transformers.utils.hub import cached_file

    place = _located(path)
    if Path(place).is_file():
        return None
    lenient = {"_raise_exceptions_for_missing_entries": False}
    with _one_paragraph(f"the model {path}"):
        found = cached_file(str(place), name, **lenient)
    return None if found is None else Path(found)


def base_of(path: str | Path) -> str | None:
    """The base model that an adapter names, None for any other model; ValueError if it names none."""
    if (file := file_of(path, SETTINGS)) is None:
        return None
    with _one_paragraph(f"the adapter {path}"):
        base: str | None = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ValueError(
            f"the adapter {path} names no base model; set base_model_name_or_path in its adapter_config.json"
        )
    return base


def id_count(tokenizer: Any) -> int:
    """Ids of a tokenizer: the largest + 1, as ids may have gaps; `len` counts its entries."""
    return int(max(tokenizer.get_vocab().values())) + 1


def holds_tokenizer(path: str | Path) -> bool:
    """Whether a model has a tokenizer of its own."""
    return file_of(path, "tokenizer_config.json") is not None


def _tokenizer(path: str | Path) -> Any:
    from transformers import AutoTokenizer

    missing = ValueError("it has no tokenizer files; save its tokenizer there with save_pretrained")
    if Path(path).is_dir() and not any(file for kind in TOKENIZER for file in Path(path).glob(kind)):
        raise missing
    place, options = gguf.source(path)
    tokenizer: Any = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
    if tokenizer.get_vocab().keys() <= set(tokenizer.all_special_tokens):
        raise missing
    return tokenizer


def _check_weights(folder: Path, pattern: str) -> None:
    if not any(folder.glob(pattern)):
        raise ValueError(f"the folder {folder} holds no weights ({pattern}); save the model there once more")


@contextmanager
def _one_paragraph(
    what: str, advice: str = "give a model folder, a GGUF file or a reachable hub name"
) -> Iterator[None]:
    """Turn the libraries' loading errors into one ValueError that says what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError, struct.error) as error:
        raise ValueError(f"{what} cannot be loaded ({_first_line(error)}); {advice}") from error


def _first_line(error: Exception) -> str:
    """The first line of a message, with the next one where it ends with a colon."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])
