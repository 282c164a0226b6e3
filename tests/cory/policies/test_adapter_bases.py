"""An adapter names its backbone so that other machines understand it; loading finds it again."""

import json
import shutil

import peft
import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

from cory import pocket
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import load_model, load_tokenizer
from cory.policies.lora import LoraTeam
from cory.policies.lora_config import LoRAConfig, shared_name
from cory.runtime import hub
from cory.training.targets import find
from tests.helpers.models import model_logits, policy_logits, stir

RANK_4 = LoRAConfig(rank=4)


def saved_adapter(model, folder, **options):
    """A policy that learned a little on `model`, saved in `folder`."""
    policy = LoraTeam.load(["llm_1"], model, config=RANK_4, **options).policies["llm_1"]
    stir(policy)
    policy.save(folder)
    return policy


@pytest.fixture
def cached(tiny_folder, tmp_path, monkeypatch):
    """The model `owner/name` in the hub's cache, without a hub."""
    repository = tmp_path / "cache/models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("0" * 40)
    shutil.copytree(tiny_folder, repository / "snapshots" / ("0" * 40))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    return "owner/name"


@pytest.mark.parametrize("model", ["pocket", pocket.LM])
def test_an_embedded_model_is_named_as_on_the_command_line(tmp_path, monkeypatch, model):
    """No file of the adapter names a folder of the machine that trained it."""
    folder = tmp_path / "adapter"
    policy = saved_adapter(model, folder)
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "pocket"
    backbone = json.loads((folder / "backbone.json").read_text())
    assert backbone == {"path": "pocket", "sha256": policy._team[0].backbone_sha256}
    for path in folder.glob("*.json"):
        assert str(pocket.HERE) not in path.read_text(), path
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = policy_logits(CausalLMPolicy.load("x", folder))
    torch.testing.assert_close(found, policy_logits(policy), atol=1e-4, rtol=0)
    assert find(str(folder)).config.policy.model == "pocket"


def test_peft_loads_an_adapter_on_the_embedded_model_that_is_named(tmp_path):
    policy = saved_adapter("pocket-arithmetic", tmp_path)
    backbone = AutoModelForCausalLM.from_pretrained(pocket.lm_path("pocket-arithmetic"), dtype=torch.float32)
    wrapped = peft.PeftModel.from_pretrained(backbone, str(tmp_path))
    torch.testing.assert_close(model_logits(wrapped), policy_logits(policy), atol=1e-4, rtol=0)


def test_a_model_of_the_hub_is_named_as_on_the_hub(cached, tmp_path):
    folder = tmp_path / "adapter"
    policy = saved_adapter(cached, folder)
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == cached
    assert json.loads((folder / "backbone.json").read_text())["path"] == cached
    torch.testing.assert_close(
        policy_logits(CausalLMPolicy.load("x", folder)), policy_logits(policy), atol=1e-5, rtol=0
    )


def test_an_adapter_on_the_hub_has_what_lies_beside_it(cached, tmp_path, monkeypatch):
    """Tokenizer, value head, base model; while the hub responds it is loaded by its name."""
    repository = tmp_path / "cache/models--owner--adapter"
    shutil.copytree(tmp_path / "cache/models--owner--name/refs", repository / "refs")
    folder, absent = repository / "snapshots" / ("0" * 40), repository / ".no_exist" / ("0" * 40)
    policy = saved_adapter(cached, folder)
    absent.mkdir(parents=True)
    (absent / "config.json").touch()
    tokenizer = load_tokenizer(cached)
    assert tokenizer.chat_template is None
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained(folder)
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_tokenizer("owner/adapter").chat_template == tokenizer.chat_template
    assert load_model("owner/adapter")[1].chat_template == tokenizer.chat_template
    loaded = CausalLMPolicy.load("x", "owner/adapter")
    assert torch.equal(loaded.value_head.weight, policy.value_head.weight)
    assert loaded.value_head.weight.any()
    assert find("owner/adapter").config.policy.model == cached
    with pytest.raises(ValueError, match="the model owner/adaptor cannot be loaded"):
        load_model("owner/adaptor")
    with pytest.raises(ValueError, match="owner/adapter is an adapter; name its base model"):
        LoraTeam.load(["llm_1"], "owner/adapter")
    (folder / "tokenizer_config.json").rename(absent / "tokenizer_config.json")
    assert load_tokenizer("owner/adapter").chat_template is None


def test_a_folder_of_the_user_is_named_by_its_absolute_path(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_folder.parent)
    assert shared_name(tiny_folder.name) == str(tiny_folder.resolve())
    assert shared_name("owner/name") == "owner/name"


def test_an_embedded_model_with_other_weights_is_refused(tmp_path, tiny_folder, monkeypatch):
    """Another version of this package may embed another model under the same name."""
    saved_adapter("pocket", tmp_path)
    monkeypatch.setitem(pocket.MODELS, "pocket", tiny_folder)
    with pytest.raises(ValueError, match=r"belongs to an embedded model 'pocket' with sha256 \w{12}"):
        load_model(tmp_path)


def test_a_backbone_that_is_not_here_is_named_with_what_to_do(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "model")
    saved_adapter(tmp_path / "model", tmp_path / "adapter")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(ValueError, match=r"no model folder .*/model.* name its base in base_model_"):
        load_model(tmp_path / "adapter")
