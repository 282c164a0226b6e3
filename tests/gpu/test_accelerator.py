"""Training on an accelerator, beside the same on the CPU: `pytest -m gpu tests`, part 1 of benchmarks/gpu.sh.

`CORY_TEST_DEVICE` names the device, by default cuda. On `cpu` what follows is rehearsed; tests of an
accelerator's memory and waits are skipped.
"""

import warnings

import pytest
import torch

from cory.cli.main import main
from cory.policies.causal_lm import CausalLMPolicy
from cory.training.trainer import Trainer
from tests.helpers.models import GPU as DEVICE
from tests.helpers.models import make_team
from tests.helpers.pretended_runs import (
    LANGUAGE_MODELS,
    ROUNDED,
    config_of,
    difference,
    folder_of,
    rounding,
    trained,
)
from tests.helpers.runs import same, traces, without_report

pytestmark = pytest.mark.gpu

EXACT = [case for case in LANGUAGE_MODELS if not any(word in case for word in ROUNDED)]
accelerator_only = pytest.mark.skipif(DEVICE == "cpu", reason="a CPU neither waits nor has memory of its own")


@pytest.mark.parametrize("case", EXACT)
def test_tokens_are_those_of_the_cpu_and_gradients_agree(case):
    there, here = trained(case, DEVICE), trained(case, "cpu")
    for seat, batch in here.batches.items():
        assert torch.equal(there.batches[seat].response_BT, batch.response_BT)
    for name, wanted in here.gradients.items():
        assert difference(wanted, there.gradients[name]) < 1e-4


@pytest.mark.parametrize("case", [case for case in LANGUAGE_MODELS if "bfloat16" in case])
def test_bfloat16_rounds_log_probs_as_8_bits_do(case):
    there = trained(case, DEVICE)
    assert 1e-3 < rounding(case, there.batches["pioneer_0"]) < 0.2


@pytest.mark.parametrize("kind", ["gpt2", "llama", "lora"])
@accelerator_only
def test_decoding_waits_for_the_device_once_in_eight_tokens(kind):
    policy = (
        make_team(folder_of("gpt2"), device=DEVICE).policies["llm_1"]
        if kind == "lora"
        else CausalLMPolicy.load("llm_1", folder_of(kind), device=DEVICE, precision="float32")
    )
    policy.eos = frozenset({-1})
    waits = {tokens: _waits(policy, tokens) for tokens in (9, 33)}
    assert waits[33] - waits[9] <= 24 / 8


def _waits(policy, tokens: int) -> int:
    prompt_BP = torch.full((3, 4), 5, device=DEVICE)
    options = {
        "uniforms_BT": torch.rand(3, tokens),
        "caps_B": torch.full((3,), tokens, device=DEVICE),
    }
    length_B = torch.tensor([4, 2, 3], device=DEVICE)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            policy.sample(prompt_BP, length_B, **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in found)


@accelerator_only
def test_passes_become_smaller_where_memory_runs_out(monkeypatch):
    config = config_of("gpt2 ppo, rows shared, weights averaged", DEVICE)
    trainer = Trainer(config)
    before = next(iter(trainer.policies.values())).memory.activations
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved(DEVICE)
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    index = torch.cuda.current_device()  # this function takes no device without an index
    torch.cuda.set_per_process_memory_fraction((held + (24 << 20)) / total, index)
    try:
        trainer.iterate(0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, index)
    assert next(iter(trainer.policies.values())).memory.activations <= before


@pytest.mark.parametrize("policy", ["causal_lm", "lora_team"])
def test_a_deterministic_run_resumes_bit_for_bit(policy, tmp_path, monkeypatch):
    without_report(monkeypatch)
    monkeypatch.chdir(tmp_path)
    command = [
        *("train", "--policy.kind", policy, "--policy.device", DEVICE, "--deterministic", "--batch", "8"),
        *("--exchange.every", "1", "--evaluation.every", "0", "--evaluation.queries", "4", "--threads", "1"),
        *("--checkpoint-every", "1"),
    ]
    assert main([*command, "--iterations", "4", "--run", "whole"]) == 0
    assert main([*command, "--iterations", "2", "--run", "cut"]) == 0
    assert main([*command, "--iterations", "4", "--run", "cut", "--resume", "must"]) == 0
    assert same(traces(tmp_path / "cut", 4), traces(tmp_path / "whole", 4))


def test_the_pocket_run_trains_evaluates_and_reports(tmp_path):
    run = tmp_path / "run"
    short = ("--iterations", "2", "--evaluation.queries", "16", "--evaluation.every", "1")
    assert main(["train", "--policy.device", DEVICE, "--run", str(run), *short]) == 0
    assert (run / "report.html").stat().st_size > 10_000
    assert main(["evaluate", str(run), "--queries", "16"]) == 0
