"""Folders of LoRA teams: what PEFT and transformers read from them, and which ones are refused."""

import json
from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, BertConfig, BertLMHeadModel, MambaConfig, MambaForCausalLM

from cory.policies import lora_adapters
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import load_model
from cory.policies.lora import LoraTeam
from cory.policies.lora_config import LoRAConfig
from tests.helpers.batches import B, make_batch
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import (
    CLASSES,
    frozen_weights,
    make_team,
    make_tokenizer,
    model_logits,
    policy_logits,
    save_backbone,
    stir,
    weights_of,
)


def learn(policy, **options) -> None:
    batch = make_batch(policy)
    learner = make_learner(policy, **options)
    learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])


def test_a_saved_adapter_opens_in_plain_transformers_and_peft(backbone, tmp_path):
    """The value head lies beside it."""
    policy = make_team(backbone).policies["llm_2"]
    stir(policy)
    policy.save(tmp_path)
    want = policy_logits(policy)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(model_logits(plain), want, atol=1e-5, rtol=0)
    wrapped = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(backbone), str(tmp_path))
    torch.testing.assert_close(model_logits(wrapped), want, atol=1e-5, rtol=0)
    ours = CausalLMPolicy.load("llm_2", tmp_path)
    torch.testing.assert_close(policy_logits(ours), want, atol=1e-5, rtol=0)
    assert torch.equal(ours.value_head.weight, policy.value_head.weight)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == str(backbone.resolve())
    assert saved["target_modules"] == sorted(saved["target_modules"])


def test_a_merged_export_is_a_whole_model_and_changes_nothing_in_memory(backbone, tmp_path):
    team = make_team(backbone)
    policy = team.policies["llm_1"]
    stir(policy)
    stir(team.policies["llm_2"], seed=2)
    want, theirs, fixed = policy_logits(policy), policy_logits(team.policies["llm_2"]), frozen_weights(team)
    policy.save_merged(tmp_path)
    assert not (tmp_path / "adapter_config.json").exists()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is type(team.model)
    torch.testing.assert_close(model_logits(plain), want, atol=1e-5, rtol=0)
    assert torch.equal(CausalLMPolicy.load("x", tmp_path).value_head.weight, policy.value_head.weight)
    assert torch.equal(policy_logits(policy), want)
    assert torch.equal(policy_logits(team.policies["llm_2"]), theirs)
    assert all(torch.equal(frozen_weights(team)[name], tensor) for name, tensor in fixed.items())


@torch.no_grad()
def test_a_saved_adapter_plays_in_bfloat16_as_it_was_trained(backbone, tmp_path):
    """Merged, it is rounded with the weights: of SmolLM2 in bfloat16 0.62 of what an adapter did was left."""
    policy = make_team(backbone, precision="bfloat16").policies["llm_1"]
    stir(policy)
    policy.save(tmp_path)
    want = policy_logits(policy)
    plays = CausalLMPolicy.load("x", tmp_path, merge=False, precision="bfloat16")
    assert torch.equal(policy_logits(plays), want)
    assert torch.equal(plays.value_head.weight, policy.value_head.weight)
    merged = CausalLMPolicy.load("x", tmp_path, precision="bfloat16")
    assert not torch.equal(policy_logits(merged), want)


def test_distinct_weights_survive_a_load_in_shuffled_order(backbone, tmp_path):
    """In place, and with the parameters in the order that optimisers know."""
    team = make_team(backbone)
    for i, (name, policy) in enumerate(team.policies.items()):
        stir(policy, seed=i)
        policy.save(tmp_path / name)
    other = make_team(backbone, ("llm_2", "llm_1"), seed=5)
    for name in ("llm_2", "llm_1"):
        before = [id(parameter) for parameter in other.policies[name].parameters()]
        other.policies[name].restore(tmp_path / name)
        assert [id(parameter) for parameter in other.policies[name].parameters()] == before
        assert list(weights_of(other.policies[name])) == list(weights_of(team.policies[name]))
        for key, tensor in weights_of(team.policies[name]).items():
            assert torch.equal(weights_of(other.policies[name])[key], tensor)
        assert torch.equal(policy_logits(other.policies[name]), policy_logits(team.policies[name]))
    assert not torch.equal(policy_logits(other.policies["llm_1"]), policy_logits(other.policies["llm_2"]))


def test_training_from_an_adapter_starts_at_a_kl_of_exactly_0(backbone, tmp_path):
    """Adapters off is not the start, and the reference stays the start for ever."""
    first = make_team(backbone).policies["llm_1"]
    stir(first)
    first.save(tmp_path)
    team = make_team(backbone, config=LoRAConfig(rank=99, adapter=tmp_path))
    assert all(policy.equals_reference() for policy in team.policies.values())
    reference = weights_of(team.reference)
    assert torch.equal(policy_logits(team.reference), policy_logits(first))
    for policy in team.policies.values():
        batch = make_batch(policy)
        assert (batch.exact_kl_BT == 0).all()
        assert torch.equal(policy.value_head.weight, first.value_head.weight)
        learn(policy)
        assert make_batch(policy).exact_kl_BT.sum() > 0
    assert all(torch.equal(weights_of(team.reference)[name], tensor) for name, tensor in reference.items())
    assert not [name for name, parameter in team.reference.named_parameters() if parameter.requires_grad]


def test_a_single_policy_is_a_team_of_one_with_the_targets_it_is_given(backbone):
    kind = next(name for name in CLASSES if backbone.name.startswith(name))
    target = {"gpt2": "attn.c_proj"}.get(kind, "q_proj")
    policy = make_team(backbone, ["llm_1"], config=LoRAConfig(rank=1, alpha=1, targets=(target,))).policies[
        "llm_1"
    ]
    assert len(policy.adapter) == 2
    assert all(layer.replace("/", ".").endswith(f".{target}") for layer in policy.adapter)


def test_an_unknown_target_is_refused_with_the_known_ones(backbone):
    with pytest.raises(ValueError, match=r"lora\.targets names 'qkv', .* there are (c_attn|down_proj), "):
        make_team(backbone, config=LoRAConfig(targets=("qkv",)))
    with pytest.raises(ValueError, match=r"lora\.targets names 'lm_head'"):
        make_team(backbone, config=LoRAConfig(targets=("lm_head",)))


def test_an_adapter_of_the_head_is_refused(backbone, tmp_path):
    """Its factors would be scored with and would never learn: the head belongs to the frozen backbone."""
    model = AutoModelForCausalLM.from_pretrained(backbone)
    settings = peft.LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["lm_head"])
    peft.get_peft_model(model, settings).save_pretrained(tmp_path, save_embedding_layers=False)
    with pytest.raises(ValueError, match="the adapter has factors of lm_head, outside the trunk"):
        make_team(backbone, config=LoRAConfig(adapter=tmp_path))


@pytest.mark.parametrize("options", [{"init_lora_weights": "pissa"}, {"alora_invocation_tokens": [3]}])
def test_an_adapter_that_changes_its_base_or_starts_at_a_token_is_refused(backbone, options, tmp_path):
    """PEFT subtracts what PiSSA starts from out of the base; a team's base is everybody's."""
    model = AutoModelForCausalLM.from_pretrained(backbone)
    layers = [name for name, layer in model.named_modules() if name.endswith(("q_proj", "c_attn"))]
    settings = peft.LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=layers, **options)
    peft.get_peft_model(model, settings).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="convert it to a plain one with PEFT, or train"):
        make_team(backbone, config=LoRAConfig(adapter=tmp_path))


def test_an_adapter_with_biases_that_no_whole_model_can_hold_is_refused(tmp_path):
    folder = save_backbone("llama", tmp_path / "model")
    base = AutoModelForCausalLM.from_pretrained(folder)
    settings = peft.LoraConfig(target_modules=["q_proj"], lora_bias=True)
    peft.get_peft_model(base, settings).save_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="has lora_bias, and the model has layers without one"):
        LoraTeam.load(["llm_1"], folder, config=LoRAConfig(adapter=tmp_path / "a"))
    with pytest.raises(ValueError, match=r"cannot be merged into its base \(Impossible to merge"):
        load_model(tmp_path / "a")


def test_default_targets_are_the_linear_layers_of_the_trunk_whatever_else_has_their_names(tmp_path):
    """BERT's head has a `dense` layer too, as the layers of its trunk are called."""
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, is_decoder=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    BertLMHeadModel(shape).save_pretrained(tmp_path)
    policy = LoraTeam.load(["llm_1"], tmp_path).policies["llm_1"]
    found = lora_adapters.factors(policy.model, "llm_1")
    layers = {name.removeprefix("bert.encoder.layer.0.") for name in found}
    assert layers >= {"attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense"}
    assert not any(name.startswith("cls.") for name in layers)


def test_an_architecture_whose_layers_cannot_all_be_adapted_gets_advice(tmp_path):
    """PEFT refuses `out_proj` of Mamba."""
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    shape = MambaConfig(
        vocab_size=len(tokenizer), hidden_size=8, state_size=2, num_hidden_layers=1, eos_token_id=0
    )
    MambaForCausalLM(shape).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="out_proj") as found:
        LoraTeam.load(["llm_1"], tmp_path)
    assert found.value.__notes__ == ["or name fewer layers by lora.targets, such as q_proj v_proj"]


def test_a_team_has_the_tokenizer_of_the_adapter_that_it_starts_from(backbone, tmp_path):
    make_team(backbone).policies["llm_1"].save(tmp_path)
    tokenizer = make_tokenizer()
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(7)
    tokenizer.save_pretrained(tmp_path)
    assert 7 in LoraTeam.load(["llm_1"], backbone, config=LoRAConfig(adapter=tmp_path)).policies["llm_1"].eos
    tokenizer.add_tokens([f"<new {i}>" for i in range(99)])
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="causal_lm on it, which adds them"):
        LoraTeam.load(["llm_1"], backbone, config=LoRAConfig(adapter=tmp_path))


def test_another_backbone_and_another_rank_are_refused(backbone, tmp_path):
    policy = make_team(backbone).policies["llm_1"]
    policy.save(tmp_path / "adapter")
    with pytest.raises(ValueError, match="name a folder of the same rank and targets"):
        make_team(backbone, config=LoRAConfig(rank=2)).policies["llm_1"].restore(tmp_path / "adapter")
    model = AutoModelForCausalLM.from_pretrained(backbone)
    with torch.no_grad():
        model.get_input_embeddings().weight[3, 3] += 1e-3
    model.save_pretrained(tmp_path / "other")
    make_tokenizer().save_pretrained(tmp_path / "other")
    other = make_team(tmp_path / "other")
    assert other.backbone_sha256 != policy._team[0].backbone_sha256
    with pytest.raises(ValueError, match="name the model this adapter was trained on"):
        other.policies["llm_1"].restore(tmp_path / "adapter")
    with pytest.raises(ValueError, match="name the model this adapter was trained on"):
        make_team(tmp_path / "other", config=LoRAConfig(adapter=tmp_path / "adapter"))
    with pytest.raises(ValueError, match=r"is an adapter; .* start from the adapter with lora\.adapter"):
        make_team(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, r"lora\.rank is 0"),
        ({"alpha": -1}, r"lora\.alpha is -1"),
        ({"adapter": Path("nowhere")}, r"lora\.adapter nowhere holds no adapter_config\.json"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LoRAConfig(**options)


def test_names_that_would_collide_are_refused(tiny_folder):
    for names in (("llm_1", "llm_1"), ("reference",), ("llm.1",)):
        with pytest.raises(ValueError, match="cannot name a policy"):
            make_team(tiny_folder, names)


def test_the_backbones_hash_is_that_of_its_file(tiny_folder):
    import hashlib

    want = hashlib.sha256((tiny_folder / "model.safetensors").read_bytes()).hexdigest()
    assert make_team(tiny_folder).backbone_sha256 == want
