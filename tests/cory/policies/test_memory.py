"""How many rows and logits a pass takes follows from the free memory of the device."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from cory.policies import chunked_loss
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime import memory
from cory.runtime.memory import MemoryBudget, pass_bytes
from tests.helpers.models import make_policy

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
GIB = 1 << 30


@pytest.fixture(autouse=True)
def fresh_budget():
    """An accelerator is measured once per process: forget it before and after each test."""
    memory._share_of_accelerator.cache_clear()
    yield
    memory._share_of_accelerator.cache_clear()


def pretend_cuda(monkeypatch, free: int) -> MemoryBudget:
    """The budget of a CUDA device with `free` bytes."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 * GIB))
    memory._share_of_accelerator.cache_clear()
    return MemoryBudget.of(pass_bytes("auto", CUDA))


def seven_billion(**options) -> CausalLMPolicy:
    """A policy of the shape of Llama-2-7B without weights."""

    class Tokenizer(SimpleNamespace):
        def get_vocab(self) -> dict[str, int]:
            return {str(i): i for i in range(32_000)}

    shape = LlamaConfig(
        vocab_size=32_000, hidden_size=4096, intermediate_size=11_008, num_hidden_layers=32,
        num_attention_heads=32, max_position_embeddings=4096, eos_token_id=2,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa")
    return CausalLMPolicy("llm_1", model, Tokenizer(eos_token_id=2, pad_token_id=None), **options)


def test_a_card_of_80_gb_takes_more_than_one_row_of_a_7b_model(monkeypatch):
    """Half of 80 GB, as a power of two, is 34.4 GB for activations: 34 numbers per token, channel and layer.

    1,024 tokens * 34 * 4,096 channels * 32 layers are 4.6 billion numbers: 9.1 GB in bfloat16, so 3 rows. One
    row without gradient has one layer's activations and the keys and values of 32: 0.8 GB, so 41 rows.
    """
    policy = seven_billion(precision="bfloat16")
    policy.budget = pretend_cuda(monkeypatch, 80 * 10**9)
    assert policy.budget.activations == 2**35
    assert policy.max_rows(1024) == 3
    assert policy.max_rows(1024, learning=False) == 41
    # an eighth of 80 GB, as a power of two: 8.6 GB for the logits of 22,369 tokens of 12 * 32,000 bytes
    assert policy.max_logit_rows() == 2**33 // (12 * 32_000) == 22_369


def test_a_row_that_exceeds_the_budget_is_still_taken_by_itself(monkeypatch):
    policy = seven_billion(precision="bfloat16")
    policy.budget = pretend_cuda(monkeypatch, GIB)
    assert policy.max_rows(4096) == 1
    policy.budget = MemoryBudget(activations=1, logits=1)
    assert (policy.max_rows(1), policy.max_logit_rows()) == (1, 1)


def test_sampling_asks_for_room_for_the_longest_prompt_and_the_longest_response(monkeypatch):
    """Prompts end in one column, so prompts of 5 and 1 tokens with caps of 2 and 7 need 5 + 7 columns."""
    policy, asked = make_policy("gpt2"), []
    monkeypatch.setattr(policy, "max_rows", lambda length, *, learning: asked.append(length) or 1)
    policy.sample(
        torch.full((2, 5), 9),
        torch.tensor([5, 1]),
        uniforms_BT=torch.full((2, 7), 0.5),
        caps_B=torch.tensor([2, 7]),
    )
    assert set(asked) == {12}


def test_bfloat16_takes_twice_the_rows_and_twice_the_length_half(monkeypatch):
    budget = MemoryBudget(activations=1 << 40, logits=1)
    half, whole = seven_billion(precision="bfloat16"), seven_billion(precision="float32")
    half.budget = whole.budget = budget
    assert half.max_rows(1024) // whole.max_rows(1024) == 2
    assert whole.row_bytes(2048) == 2 * whole.row_bytes(1024) == 4 * half.row_bytes(1024)


def test_the_budget_is_a_power_of_two_and_halves_with_the_memory(monkeypatch):
    for gib in (80, 40, 20, 10):
        budget = pretend_cuda(monkeypatch, gib * GIB)
        # half of 80 GiB is 40: the power of two below is 32; an eighth is 10, and 8
        assert (budget.activations, budget.logits) == (gib * 32 * GIB // 80, gib * 8 * GIB // 80)
        for count in budget.state().values():
            assert count.bit_count() == 1


def test_a_budget_survives_as_json(monkeypatch):
    budget = pretend_cuda(monkeypatch, 24 * GIB)
    assert MemoryBudget(**budget.state()) == budget


def test_a_budget_is_measured_once(monkeypatch):
    first = pretend_cuda(monkeypatch, 80 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (GIB, 80 * GIB))
    assert MemoryBudget.of(pass_bytes("auto", CUDA)) == first


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [(2560, [640] * 4), (667, [667]), (668, [336, 332]), (2547, [640] * 3 + [627]), (1, [1]), (0, [])],
)
def test_chunks_are_few_and_of_equal_size(tokens, sizes):
    """At most 667 tokens in each."""
    assert [len(range(tokens)[at]) for at in chunked_loss.chunks(tokens, 667)] == sizes


@pytest.mark.parametrize("gib", [2, 20])
def test_memory_for_a_pass_on_a_cpu_does_not_depend_on_what_is_free(gib, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=gib * GIB))
    assert MemoryBudget.of(pass_bytes("auto", CPU)) == MemoryBudget(activations=GIB, logits=GIB // 4)


def test_a_number_of_bytes_is_taken_on_every_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: pytest.fail("nothing is measured"))
    assert pass_bytes(12_345, CPU) == pass_bytes(12_345, CUDA) == 12_345
