"""Memory is estimated before a run, near what autograd keeps, and named where it will not do."""

from dataclasses import replace

import pytest
import torch

from cory.training import memory_estimate
from cory.config.schema import Config
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.lora_config import LoRAConfig as LoraConfig
from cory.policies.lora import LoraTeam
from tests.cory.conftest import make_model, make_tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
def test_activations_are_near_what_autograd_keeps(kind):
    policy = CausalLMPolicy("llm_1", make_model(kind, 300), make_tokenizer())
    ours = {p.untyped_storage().data_ptr() for p in policy.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ours:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = policy.trunk(
            input_ids=torch.ones(16, 8, dtype=torch.long), use_cache=False
        ).last_hidden_state
    assert hidden.requires_grad
    told = memory_estimate.iteration_bytes(Config(batch=16), {"llm_1": policy}, longest=8)
    assert sum(kept.values()) / 2.5 < told["activations"] < 2.5 * sum(kept.values())


def test_where_a_team_learns_in_one_pass_the_rows_of_all_are_counted(tmp_path):
    make_model("gpt2", 300).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    told = []
    for one_pass in ("no", "yes"):
        team = LoraTeam.load(("llm_1", "llm_2"), tmp_path, config=LoraConfig(one_pass=one_pass))
        told.append(memory_estimate.iteration_bytes(Config(batch=4), {**team.policies}, longest=8)["activations"])
    assert told[1] == 2 * told[0]


def test_gradients_and_optimiser_are_counted_for_everything_that_learns():
    policy = CausalLMPolicy("llm_1", make_model("gpt2", 300), make_tokenizer())
    weights = sum(p.numel() for p in policy.parameters())
    config = Config(batch=4)
    two = {"llm_1": policy, "llm_2": CausalLMPolicy("llm_2", make_model("gpt2", 300), make_tokenizer())}
    assert memory_estimate.iteration_bytes(config, two, 8)["gradients and optimiser"] == 2 * 12 * weights
    eight = replace(config, learner=replace(config.learner, optimizer="adam8bit"))
    assert memory_estimate.iteration_bytes(eight, two, 8)["gradients and optimiser"] == 2 * 6 * weights


def test_what_does_not_fit_is_said_with_sizes_and_settings():
    needed = {"gradients and optimiser": 6 * 10**9, "activations": 3 * 10**9, "logits": 10**9}
    said = memory_estimate.warning(needed, 8 * 10**9)
    for part in ("10.0 GB", "8.0 GB are free", "activations 3.0", "learner.microbatches", "lora_team"):
        assert part in said
    assert memory_estimate.warning(needed, 11 * 10**9) is None
    assert memory_estimate.warning(needed, None) is None
