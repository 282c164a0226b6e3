"""Models and adapters from folders, and every refusal before any training."""

import json
import shutil
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, OPTConfig, T5Config, pipeline

from cory.config.schema import Config, PolicyConfig
from cory.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from cory.policies.loading import load_model, load_tokenizer
from cory.training.factory import make_players, tokens_of
from cory_env.tokenizer import HFTokenizer
from tests.helpers.models import gapped_tokenizer, make_model, make_tokenizer


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of a model folder, for tests that damage it."""
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture
def adapter(tiny_folder, tmp_path):
    """A PEFT folder whose adapter changes outputs, and the model with it."""
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny_folder),
        LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", model.eval()


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_plain_transformers_loads_a_saved_policy_and_generates_with_it(tiny_folder, tmp_path):
    policy = CausalLMPolicy.load("llm_1", tiny_folder)
    policy.save(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(plain.transformer.wte.weight, policy.model.transformer.wte.weight)
    text = pipeline("text-generation", str(tmp_path))("a good", max_new_tokens=2)[0]["generated_text"]
    assert text.startswith("a good")


def test_weights_lie_in_aligned_memory_of_their_own(folder):
    plain = AutoModelForCausalLM.from_pretrained(folder)
    model, _ = load_model(folder)
    assert {p.data_ptr() % 64 for p in model.parameters()} == {0}
    assert {p.data_ptr() % 64 for p in plain.parameters()} != {0}, (
        "from_pretrained aligns weights: own_memory is not needed any more"
    )
    assert model.lm_head.weight is model.transformer.wte.weight
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_policy_without_a_value_head_starts_at_zero_and_a_saved_head_is_loaded(tiny_folder, tmp_path):
    policy = CausalLMPolicy.load("llm_1", tiny_folder)
    assert policy.value_head.weight.tolist() == [[0.0] * 32]
    torch.nn.init.normal_(policy.value_head.weight)
    policy.save(tmp_path)
    assert torch.equal(CausalLMPolicy.load("llm_2", tmp_path).value_head.weight, policy.value_head.weight)


def test_an_adapter_folder_loads_as_its_base_with_the_adapter_in_the_weights(adapter, tmp_path):
    path, adapted = adapter
    policy = CausalLMPolicy.load("llm_1", path)
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(policy.model(ids).logits, adapted(ids).logits, atol=1e-5, rtol=0)
    with adapted.disable_adapter():
        assert (policy.model(ids).logits - adapted(ids).logits).abs().max() > 0.1
    assert all(p.requires_grad for p in policy.parameters())
    policy.save(tmp_path / "whole")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    torch.testing.assert_close(plain(ids).logits, policy.model(ids).logits, atol=1e-5, rtol=0)


def test_the_tokenizer_of_an_adapter_is_its_own_or_that_of_its_base(adapter, tiny_folder):
    path, _ = adapter
    ours = load_tokenizer(tiny_folder)
    assert load_tokenizer(path).get_vocab() == ours.get_vocab()
    ours.add_tokens(["more"])
    ours.save_pretrained(path)
    assert len(load_tokenizer(path)) == len(load_model(path)[1]) == len(ours)


def test_an_adapter_without_its_weights_or_its_base_is_refused(adapter):
    path, _ = adapter
    edit(path / "adapter_config.json", base_model_name_or_path="/no/such/base")
    with pytest.raises(
        ValueError, match=r"the adapter .* cannot be loaded \(there is no model folder /no/such"
    ):
        load_model(path)
    edit(path / "adapter_config.json", base_model_name_or_path=None)
    with pytest.raises(ValueError, match="names no base model; set base_model_name_or_path"):
        load_model(path)
    (path / "adapter_model.safetensors").rename(path / "adapter_model.bin")
    with pytest.raises(ValueError, match=r"holds no weights \(adapter_model.safetensors\)"):
        load_model(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f / "nowhere" / "at" / "all", "there is no model folder"),
        (lambda f: (f / "config.json").unlink() or f, r"holds no config\.json"),
        (lambda f: (f / "model.safetensors").unlink() or f, "holds no weights"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 64) and f, "cannot be loaded"),
        (lambda f: (f / "config.json").write_text("{}") and f, "cannot be loaded"),
        (lambda f: edit(f / "config.json", model_type="nonesuch") or f, "cannot be loaded .*`nonesuch`"),
        (lambda f: T5Config().save_pretrained(f) or f, "cannot be loaded .*T5Config"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_by_name(folder, make, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_model(make(folder))
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_tensor_are_refused_rather_than_initialised_at_random(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.ln_f.bias"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack 1 tensors of GPT2LMHeadModel, such as transformer.ln_f.bias"):
        load_model(folder)


def test_code_that_comes_with_a_model_is_never_run(folder):
    """By default transformers would ask on the terminal whether to run it, and wait."""
    names = {"AutoConfig": "planted.Config", "AutoModelForCausalLM": "planted.Model"}
    edit(folder / "config.json", model_type="planted", auto_map=names)
    (folder / "planted.py").write_text("import sys; sys.planted = True")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_model(folder)
    assert not hasattr(sys, "planted")


def test_the_value_head_has_the_width_of_the_language_model_heads_input():
    """OPT narrows its last states from hidden_size 32 to 16; a bare GPT-2 has no head at all."""
    shape = OPTConfig(
        vocab_size=300, hidden_size=32, word_embed_proj_dim=16, ffn_dim=64, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=64, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    policy = CausalLMPolicy("llm_1", AutoModelForCausalLM.from_config(shape), make_tokenizer())
    states_TD = policy.trunk(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]
    assert policy.values(states_TD).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="GPT2Model has no language-model head"):
        CausalLMPolicy("llm_2", make_model("gpt2", 300).base_model, make_tokenizer())


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_this_machine_lacks_is_refused_before_anything_is_read(device):
    with pytest.raises(ValueError, match=f"device '{device}' cannot be used here .*; name one .*: cpu"):
        CausalLMPolicy.load("llm_1", "/nothing/is/read", device=device)


def test_tables_are_not_put_on_the_cpu_silently_either():
    config = Config.from_flat(
        {
            "task": "echo",
            "policy": PolicyConfig(kind="table", device="cuda:99"),
        }
    )
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"):
        make_players(config)


def test_a_tokenizer_without_pad_is_legal_and_one_without_eos_is_not():
    model, tokenizer = make_model("gpt2", 300), make_tokenizer()
    tokenizer.pad_token = None
    policy = CausalLMPolicy("llm_1", model, tokenizer)
    assert (policy.eos, policy.pad) == ({0}, 0)
    tokenizer.eos_token = None
    assert CausalLMPolicy("llm_1", model, tokenizer).eos == {0}  # the generation config's
    model.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match="names an EOS token; set one"):
        CausalLMPolicy("llm_1", model, tokenizer)


def test_special_ids_outside_the_models_vocabulary_are_not_used():
    """A pad token is often added to a tokenizer and not to its model."""
    tokenizer = make_tokenizer()
    V = len(tokenizer)
    model = make_model("gpt2", V)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    assert tokenizer.pad_token_id == V
    policy = CausalLMPolicy("llm_1", model, tokenizer)
    game_tokenizer = tokens_of(policy)
    assert (policy.pad, game_tokenizer.pad, game_tokenizer.vocab_size) == (0, 0, V)
    model.generation_config.eos_token_id = [0, V]
    assert CausalLMPolicy("llm_1", model, tokenizer).eos == {0}
    tokenizer.eos_token = "<pad>"
    model.generation_config.eos_token_id = V
    with pytest.raises(ValueError, match=rf"EOS ids \[{V}\] lie outside the vocabulary of {V}"):
        CausalLMPolicy("llm_1", model, tokenizer)


def test_policies_of_different_weights_need_one_tokenizer():
    def policy(name, *, kind="gpt2", tokens=(), eos=0, rows=300):
        tokenizer = make_tokenizer()
        tokenizer.add_tokens(list(tokens))
        model = make_model(kind, rows)
        model.generation_config.eos_token_id = eos
        return CausalLMPolicy(name, model, tokenizer)

    V = len(make_tokenizer())
    first = policy("llm_1")
    check_same_tokenizer([first, policy("llm_2", kind="llama"), policy("llm_3", rows=310)])
    with pytest.raises(
        ValueError, match=f"'llm_1' and 'llm_2' have different tokenizers: token 'zebra' has id {V}"
    ):
        check_same_tokenizer([first, policy("llm_2", tokens=["zebra"])])
    with pytest.raises(ValueError, match=r"'llm_1' and 'llm_3' have different EOS ids, \[0\] and \[0, 7\]"):
        check_same_tokenizer([first, policy("llm_2"), policy("llm_3", eos=[0, 7])])
    padded = policy("llm_2")
    padded.tokenizer.pad_token = padded.tokenizer.convert_ids_to_tokens(5)
    with pytest.raises(ValueError, match="have different pad ids, 0 and 5"):
        check_same_tokenizer([first, CausalLMPolicy("llm_2", padded.model, padded.tokenizer)])


def test_ids_behind_a_gap_are_of_the_vocabulary():
    """301 tokens, the last of them with id 310: it can be sampled, and it ends a response."""
    tokenizer, count = gapped_tokenizer(10), len(make_tokenizer())
    model = make_model("llama", count + 20)
    model.generation_config.eos_token_id = [0, count + 10]
    policy = CausalLMPolicy("llm_1", model, tokenizer)
    assert policy.vocab_size == HFTokenizer(tokenizer).vocab_size == count + 11
    assert policy.eos == {0, count + 10}
