"""The memory estimate before a run is near what autograd saves; a warning names it if memory is short."""

from dataclasses import replace

import pytest
import torch

from cory.config.schema import Config
from cory.policies.causal_lm import CausalLMPolicy
from cory.training import memory_estimate
from tests.helpers.models import make_model, make_tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
def test_activations_are_near_what_autograd_saves(kind):
    policy = CausalLMPolicy("llm_1", make_model(kind, 300), make_tokenizer())
    ours = {p.untyped_storage().data_ptr() for p in policy.parameters()}
    saved: dict[int, int] = {}

    def save(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ours:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        output = policy.trunk(input_ids=torch.ones(16, 8, dtype=torch.long), use_cache=False)
    assert output.last_hidden_state.requires_grad
    needed = memory_estimate.iteration_bytes(Config(batch=16), {"llm_1": policy}, longest=8)
    assert sum(saved.values()) / 2.5 < needed["activations"] < 2.5 * sum(saved.values())


def test_gradients_and_optimizer_are_counted_for_everything_that_learns():
    policy = CausalLMPolicy("llm_1", make_model("gpt2", 300), make_tokenizer())
    weights = sum(p.numel() for p in policy.parameters())
    config = Config(batch=4)
    two = {"llm_1": policy, "llm_2": CausalLMPolicy("llm_2", make_model("gpt2", 300), make_tokenizer())}
    assert memory_estimate.iteration_bytes(config, two, 8)["gradients and optimizer"] == 2 * 12 * weights
    eight = replace(config, learner=replace(config.learner, optimizer="adam8bit"))
    assert memory_estimate.iteration_bytes(eight, two, 8)["gradients and optimizer"] == 2 * 6 * weights


def test_the_warning_names_sizes_and_settings():
    needed = {"gradients and optimizer": 6 * 10**9, "activations": 3 * 10**9, "logits": 10**9}
    warning = memory_estimate.warning(needed, 8 * 10**9)
    for part in ("10.0 GB", "8.0 GB are free", "activations 3.0", "learner.microbatches", "lora_team"):
        assert part in warning
    assert memory_estimate.warning(needed, 11 * 10**9) is None
