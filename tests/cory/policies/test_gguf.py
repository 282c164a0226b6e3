"""GGUF files as models: read whole, trained, exported as ordinary folders, and refused by what they are."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import cory
from cory import pocket
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import load_model, load_tokenizer, without_weights
from cory.policies.lora_config import weights_sha256
from tests.helpers.models import make_model, make_tokenizer

gguf = pytest.importorskip("gguf", reason="needs the package gguf (extra `gguf`)")

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
"""Modules of a layer in transformers -> their names in a GGUF file."""


def tensor_name(key):
    if not key.startswith("model.layers."):
        return {
            "model.embed_tokens.weight": "token_embd.weight",
            "model.norm.weight": "output_norm.weight",
        }.get(key, "output.weight")
    layer, _, rest = key.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def interleaved(weight, heads):
    """Rows of a query or key matrix in the order of llama.cpp, which rotates neighbours."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, model, tokenizer, *, arch="llama", quantised=True):
    """A GGUF file of a tiny Llama; matrices are stored in blocks of 8 bits."""
    writer, shape = gguf.GGUFWriter(path, arch), model.config
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(shape.hidden_size // shape.num_attention_heads)
    writer.add_vocab_size(shape.vocab_size)
    inner = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(inner["vocab"], key=inner["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_token_merges([" ".join(pair) for pair in inner["merges"]])
    for role in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        role(0)
    for key, tensor in model.state_dict().items():
        array = tensor.float().numpy()
        if "q_proj" in key or "k_proj" in key:
            heads = shape.num_attention_heads if "q_proj" in key else shape.num_key_value_heads
            array = interleaved(array, heads)
        blocks = quantised and array.ndim == 2
        kind = gguf.GGMLQuantizationType.Q8_0 if blocks else None
        data = gguf.quants.quantize(array, kind) if blocks else np.ascontiguousarray(array)
        writer.add_tensor(tensor_name(key), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    tokenizer = make_tokenizer()
    folder = tmp_path_factory.mktemp("gguf")
    return write_gguf(folder / "tiny.gguf", make_model("llama", len(tokenizer)), tokenizer)


def test_a_gguf_file_is_a_model_with_whole_weights_and_its_tokenizer(file):
    tokenizer = make_tokenizer()
    original = make_model("llama", len(tokenizer))
    model, own = load_model(file)
    for (name, ours), theirs in zip(model.named_parameters(), original.parameters(), strict=True):
        assert ours.dtype == torch.float32
        step = theirs.abs().max() / 127  # of 8 bits
        assert (ours - theirs).abs().max() <= step, name
    text = "I liked this film"
    assert own(text)["input_ids"] == tokenizer(text)["input_ids"] == load_tokenizer(file)(text)["input_ids"]
    assert own.eos_token_id == 0
    shapes = [weight.shape for weight in without_weights(file).parameters()]
    assert shapes == [weight.shape for weight in original.parameters()]


def test_a_policy_from_a_gguf_file_trains_and_saves_as_an_ordinary_folder(file, tmp_path):
    policy = CausalLMPolicy.load("llm_1", file)
    policy.model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(p.grad is not None for p in policy.model.parameters())
    policy.save(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(plain.lm_head.weight, policy.model.lm_head.weight)
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == len(policy.tokenizer)


def test_what_lies_beside_a_gguf_file_is_no_part_of_it(file, tmp_path):
    """A folder of downloads: a model of another vocabulary, and an adapter."""
    for one in Path(pocket.lm_path("pocket")).iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "gone", "peft_type": "LORA"}')
    beside = tmp_path / file.name
    beside.write_bytes(file.read_bytes())
    text = "I liked this film"
    model, tokenizer = load_model(beside)
    assert tokenizer(text)["input_ids"] == load_model(file)[1](text)["input_ids"]
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == len(load_tokenizer(beside))


def test_the_sha256_of_a_gguf_backbone_is_that_of_the_file(file, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert weights_sha256(file) != weights_sha256(other)


@pytest.mark.slow
def test_a_run_starts_from_a_gguf_file_and_exports_adapters_that_load_on_it(file, tmp_path):
    settings = {"policy.kind": "lora_team", "max_response": (2, 2), "batch": 4, "evaluation.queries": 4}
    cory.train(file, task="echo", iterations=1, run=tmp_path / "run", quiet=True, log_to="none", **settings)
    adapter = tmp_path / "run" / "policies" / "llm_1"
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(file)
    assert json.loads((adapter / "backbone.json").read_text())["sha256"] == weights_sha256(file)
    load_model(adapter)


def test_a_gguf_file_that_is_cut_short_is_refused_wherever_it_ends(file, tmp_path):
    whole = file.read_bytes()
    for length in (5, 30, 100, 1_000, 8_000, 20_000, len(whole) - 100):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.gguf cannot be loaded .*; fetch the file again"):
            load_model(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0{\"a\": 1}", "is weights without a configuration"),
        ("weights", b"\x10\0\0\0\0\0\0\0{\"__metadata__\"", "is weights without a configuration"),
        ("pytorch_model.bin", b"PK\x03\x04abc", "is a zip archive, such as pickled weights"),
        ("old.bin", b"\x80\x02}q", "is a pickle, which is never read"),
        ("model.gguf", b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS"),
        ("model.gguf", b"<html>", "is no GGUF file .b'<htm'"),
        ("empty.gguf", b"", "is no GGUF file .b''"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_model_is_refused_by_what_it_is(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_a_gguf_file_of_an_architecture_that_transformers_lacks_is_refused_with_its_name(tmp_path):
    tokenizer = make_tokenizer()
    model = make_model("llama", len(tokenizer))
    path = write_gguf(tmp_path / "other.gguf", model, tokenizer, arch="rwkv9")
    with pytest.raises(ValueError, match="rwkv9"):
        load_model(path)


def test_a_gguf_file_without_the_package_names_the_extra(file, monkeypatch):
    monkeypatch.setattr("cory.policies.gguf.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs the package gguf; pip install 'cory\[gguf\]'"):
        load_model(file)


def test_a_missing_gguf_file_is_no_hub_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"no model folder nowhere\.gguf and no such GGUF file"):
        load_model(Path("nowhere.gguf"))
