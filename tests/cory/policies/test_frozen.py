"""Frozen models with linear layers in bfloat16: the same results in half the memory."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from cory.policies import lora, lora_adapters
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.lora import LoraTeam
from cory.policies.precision import castable
from cory.policies.scoring import evaluate
from cory.training import checkpoint
from cory.training.factory import load_references
from cory.training.run import describe, train
from cory.training.trainer import Trainer
from tests.helpers.batches import B, make_batch
from tests.helpers.learners import advantage_of, gradients_used, make_learner
from tests.helpers.models import make_team, save_backbone, stir
from tests.helpers.ranked_runs import LANGUAGE_MODEL, config_of
from tests.helpers.runs import cut_run, same, traces, without_report

FROZEN = {"policy.precision": "bfloat16"}


def stirred(backbone, stored: torch.dtype = torch.bfloat16) -> LoraTeam:
    """A team that products of bfloat16 have trained a little, its backbone `stored` in another type."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lora, "product_dtype", lambda precision, device: stored)
        team = make_team(backbone, precision="bfloat16")
    for i, policy in enumerate(team.policies.values()):
        stir(policy, seed=i)
    return team


def test_a_team_stores_its_linear_layers_in_bfloat16_and_all_else_in_float32(backbone):
    team = make_team(backbone, precision="bfloat16")
    adapters = {id(p) for name in team.policies for p in lora_adapters.tensors(team.model, name).values()}
    embedding = team.model.get_input_embeddings().weight
    stored = {
        name: parameter
        for name, parameter in team.model.named_parameters()
        if parameter.dtype == torch.bfloat16 and parameter is not embedding
    }
    layers = {name.removesuffix(".base_layer") for name in lora_adapters.linear_layers(team.model)}
    assert {name for name in layers if "lora_" not in name} <= {
        name.removesuffix(".weight").removesuffix(".base_layer") for name in stored
    }
    assert not adapters & {id(p) for p in stored.values()}
    assert embedding.dtype == torch.float32
    tied = team.model.get_output_embeddings().weight is embedding
    assert ("lm_head.weight" in stored) == (not tied)
    assert not [name for name in stored if "norm" in name or "ln_" in name]
    cast = {id(parameter) for _, _, parameter in castable(team.model)}
    assert cast == adapters | ({id(embedding)} if tied else set())


def test_tokens_statistics_and_gradients_are_those_of_float32_bit_for_bit(backbone):
    results = []
    for stored in (torch.float32, torch.bfloat16):
        policy = stirred(backbone, stored).policies["llm_2"]
        batch = make_batch(policy)
        learner = make_learner(policy)
        used = gradients_used(learner)
        metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        columns = {name: tensor for name, tensor in vars(batch).items() if isinstance(tensor, torch.Tensor)}
        results.append((columns, used[0], metrics, evaluate(policy, batch)._asdict()))
    (batch, gradients, metrics, after), (batch_2, gradients_2, metrics_2, after_2) = results
    for one, other in ((batch, batch_2), (gradients, gradients_2), (after, after_2)):
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert metrics == metrics_2
    assert batch["exact_kl_BT"].max() > 1e-3  # adapters do something


@pytest.mark.parametrize(("stored", "kept"), [(torch.float32, True), (torch.bfloat16, False)])
def test_no_copies_of_the_backbone_are_held_for_the_backward_pass(backbone, stored, kept):
    policy = stirred(backbone, stored).policies["llm_1"]
    batch = make_batch(policy)
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    layers = lora_adapters.linear_layers(policy.model).items()
    whole = {tuple(layer.weight.shape) for name, layer in layers if "lora_" not in name}
    shapes = whole | {shape[::-1] for shape in whole}
    copies = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        shape = tuple(tensor.shape)
        if (
            shape in shapes | {shape[::-1] for shape in shapes}
            and tensor.untyped_storage().data_ptr() not in own
        ):
            copies.append(shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy.hidden_states(batch)
    assert bool(copies) == kept


def test_references_of_whole_models_are_stored_in_bfloat16_and_policies_in_float32(tmp_path):
    save_backbone("llama", tmp_path / "llama")
    config = config_of(tmp_path, LANGUAGE_MODEL | FROZEN | {"policy.model": "llama"})
    trainer = Trainer(config)
    reference, policy = trainer.references["llm_1"], trainer.policies["llm_1"]
    weights = dict(reference.model.named_parameters())
    for name, parameter in policy.model.named_parameters():
        assert parameter.dtype == torch.float32
        linear = "proj" in name or name == "lm_head.weight"
        assert weights[name].dtype == (torch.bfloat16 if linear else torch.float32)
        assert torch.equal(weights[name], parameter.to(weights[name].dtype))
    assert describe(trainer).endswith(
        "compute dtype bfloat16, weights float32, frozen linear layers bfloat16"
    )
    plain = replace(config, policy=replace(config.policy, precision="float32"))
    model = load_references(plain, ["llm_1"])["llm_1"].model
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.slow
def test_a_team_on_a_frozen_backbone_in_bfloat16_trains_resumes_and_exports(tmp_path, monkeypatch):
    without_report(monkeypatch)
    save_backbone("llama", tmp_path / "llama")
    settings = {
        "policy.model": "llama", "policy.kind": "lora_team", "iterations": 2, "checkpoint_every": 1,
        "keep_checkpoints": 9, "threads": 1, "learner.lr": 1e-2, "evaluation.queries": 2,
    }  # fmt: skip
    config = config_of(tmp_path, settings | FROZEN)
    train(config, tmp_path / "whole", quiet=True)
    train(config, cut_run(tmp_path / "whole", tmp_path / "cut", 1), resume="must", quiet=True)
    assert same(traces(tmp_path / "cut", 2), traces(tmp_path / "whole", 2))
    exported = tmp_path / "whole/policies/llm_2"
    adapter = load_file(exported / "adapter_model.safetensors")
    saved = load_file(checkpoint.folder_of(tmp_path / "whole", 2) / "llm_2/adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}
    assert all(torch.equal(tensor, saved[name]) for name, tensor in adapter.items())
    assert all(tensor.any() for tensor in adapter.values())  # the second factors began at 0
    merged = CausalLMPolicy.load("llm_2", exported).model
    assert {p.dtype for p in merged.parameters()} == {torch.float32}
