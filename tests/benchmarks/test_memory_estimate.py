"""The estimate of memory is near what autograd saves."""

from dataclasses import replace

import pytest
import torch

from benchmarks.speed import memory_estimate
from benchmarks.speed.workers import TASK
from benchmarks.speed.workloads import Workload
from cory.config.schema import Config, PolicyConfig
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime.memory import Architecture, MemoryBudget
from cory.training.trainer import Trainer
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
    needed = memory_estimate.of_run(Config(batch=16), {"llm_1": policy}, longest=8)["learning"]
    assert sum(saved.values()) / 2.5 < needed["activations"] < 2.5 * sum(saved.values())


def test_gradients_of_one_policy_and_moments_of_all_are_counted():
    policy = CausalLMPolicy("llm_1", make_model("gpt2", 300), make_tokenizer())
    weights = sum(p.numel() for p in policy.parameters())
    config = Config(batch=4)
    two = {"llm_1": policy, "llm_2": CausalLMPolicy("llm_2", make_model("gpt2", 300), make_tokenizer())}
    learning = memory_estimate.of_run(config, two, 8)["learning"]
    assert (learning["gradients"], learning["optimizer"]) == (4 * weights, 2 * 8 * weights)
    eight = replace(config, learner=replace(config.learner, optimizer="adam8bit"))
    assert memory_estimate.of_run(eight, two, 8)["learning"]["optimizer"] == 2 * 2 * weights


LLAMA_7B = memory_estimate.Workload(
    architecture=Architecture(layers=32, width=4096, heads=32, kv_width=2 * 4096, eager=False),
    vocab_size=32_000,
    trained=[39_981_057, 39_981_057],
    cast=6_738_415_616 - 131_072_000 - 65 * 4096,
    batch=32,
    rows=2,
    longest=1024,
    response=256,
    bfloat16=True,
)
"""A LoRA team of rank 16 on Llama-2-7b, whose embedding and 65 norms are no linear layers."""


def test_a_lora_team_of_7b_by_hand():
    """A budget of 2^35 bytes for activations takes all 32 rows; one of 2^32 five, and one learning row."""
    needed = memory_estimate.phases(LLAMA_7B, MemoryBudget(activations=1 << 35, logits=1 << 33))
    casts = 13_214_154_752  # 2 bytes of 6,607,077,376 weights
    row = 2 * 1024 * (34 * 4096 + 32 * 2 * 4096)  # one layer's activations, and 524,288 bytes a token of KV
    assert needed["sampling"] == {
        "optimizer": 639_696_912,
        "casts": casts,
        "gathered": 0,
        "activations": 32 * row,
        "logits": 32 * 12 * 32_000,
    }
    assert needed["learning"] == {
        "optimizer": 639_696_912,
        "gradients": 159_924_228,
        "casts": casts,
        "gathered": 0,
        "activations": 2 * 2 * 1024 * 34 * 4096 * 32,  # 2 rows
        "logits": 512 * 12 * 32_000,
    }
    assert memory_estimate.peak(needed)[0] == "sampling"
    tight = memory_estimate.phases(LLAMA_7B, MemoryBudget(activations=1 << 32, logits=1 << 33))
    assert tight["sampling"]["activations"] == 5 * row
    assert tight["learning"]["activations"] == 2 * 1024 * 34 * 4096 * 32


def test_weights_that_ranks_share_out_are_gathered_whole_to_sample_and_by_layers_to_learn():
    work = replace(LLAMA_7B, gathered=6 * 10**9, layer=4 * 10**8)
    needed = memory_estimate.phases(work, MemoryBudget(activations=1 << 35, logits=1 << 33))
    assert (needed["sampling"]["gathered"], needed["learning"]["gathered"]) == (6 * 10**9, 12 * 10**8)


def test_checkpointing_counts_the_inputs_of_layers_and_the_casts_of_one():
    work = replace(LLAMA_7B, checkpointing=True)
    learning = memory_estimate.phases(work, MemoryBudget(activations=1 << 35, logits=1 << 33))["learning"]
    assert learning["activations"] == 2 * 2 * 1024 * 4096 * (34 + 2 * 32)
    assert learning["casts"] == 13_214_154_752 // 32


def test_in_float32_nothing_is_cast_and_activations_are_twice_as_large():
    budget = MemoryBudget(activations=1 << 40, logits=1 << 40)
    half, whole = (
        memory_estimate.phases(replace(LLAMA_7B, bfloat16=bf), budget)["learning"] for bf in (True, False)
    )
    assert (whole["casts"], whole["activations"]) == (0, 2 * half["activations"])


def test_weights_of_a_lora_team_and_its_reference_are_counted_once(tmp_path):
    """The observer's longest row: the query of 7 tokens twice, 10 of the template, two responses of 4."""
    workload = Workload(layers=1, width=32, heads=2, vocab_size=200, batch=4, response=4)
    policy = PolicyConfig(kind="lora_team", model=str(workload.save(tmp_path)), precision="float32")
    settings = {"task": TASK, "batch": 4, "max_response": (4, 4), "policy": policy}
    trainer = Trainer(Config.from_flat(settings))
    model = workload.make_model()
    backbone = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    adapters = 4 * sum(p.numel() for policy in trainer.policies.values() for p in policy.parameters())
    heads = 4 * sum(p.numel() for p in trainer.policies["llm_1"].reference.value_head.parameters())
    longest = 7 + 4 + 10 + 7 + 4
    _, needed = memory_estimate.peak(memory_estimate.of_run(trainer.config, trainer.policies, longest))
    assert memory_estimate.of_trainer(trainer) == backbone + adapters + heads + sum(needed.values())
