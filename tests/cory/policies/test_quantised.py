"""A backbone in 4 bits: sampler and learner agree, gradients are those of the weights it stands for."""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from cory.cli.main import main
from cory.policies.loading import load_model, without_weights
from cory.policies.lora import LoraTeam
from cory.policies.lora_config import LoRAConfig
from cory.policies.scoring import evaluate
from cory.tracking.tracker import read
from tests.helpers.batches import B, make_batch, make_rows, sample_responses
from tests.helpers.learners import advantage_of, gradients_used, make_learner
from tests.helpers.models import GPU, frozen_weights, make_team, make_tokenizer, stir, weights_of
from tests.helpers.runs import without_report

FOUR_BIT = LoRAConfig(rank=4, alpha=8, four_bit="yes")


@pytest.fixture
def bitsandbytes():
    return pytest.importorskip("bitsandbytes", reason="needs bitsandbytes (pip install 'cory[quant]')")


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """A Llama of width 64: bitsandbytes packs blocks of 64 weights for fast products in bfloat16."""
    folder, tokenizer = tmp_path_factory.mktemp("wide"), make_tokenizer()
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
        initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def dequantised_team(folder: Path, bitsandbytes) -> LoraTeam:
    """A team on a float32 copy of the backbone with the weights that its 4 bits stand for."""
    model, tokenizer = load_model(folder)
    four_bit, _ = load_model(folder, four_bit="auto")
    layers = dict(model.named_modules())
    for name, layer in four_bit.named_modules():
        if isinstance(layer, bitsandbytes.nn.Linear4bit):
            weight = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
            layers[name].weight.data = weight.float()
    return LoraTeam(["llm_1"], model, tokenizer, path=folder, config=LoRAConfig(rank=4, alpha=8))


def step_gradients(policy) -> dict[str, torch.Tensor]:
    """Gradients of the first update after a rollout."""
    batch, learner = make_batch(policy), make_learner(policy)
    used = gradients_used(learner)
    learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    return used[0]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_sampler_and_learner_agree_as_closely_as_the_precision_rounds(
    backbone, bitsandbytes, precision, tolerance, attention
):
    """Prompt and response are read at once by the learner, token by token by the sampler."""
    policy = make_team(backbone, ("llm_1",), config=FOUR_BIT, precision=precision).policies["llm_1"]
    policy.model.set_attn_implementation(attention)
    stir(policy)
    for key in range(8):
        rows, behaviour_BT = make_rows(policy, key=key)
        difference_BT = behaviour_BT - evaluate(policy, rows).logprobs_BT
        assert difference_BT[rows.mask_BT].abs().max() < tolerance < policy.tolerance


def test_gradients_are_those_of_the_weights_that_four_bits_stand_for(wide, bitsandbytes):
    """Through all layers, after a rollout without gradient: they come back through the 4-bit products."""
    policy = make_team(wide, ("llm_1",), config=FOUR_BIT).policies["llm_1"]
    oracle = dequantised_team(wide, bitsandbytes).policies["llm_1"]
    for each in (policy, oracle):
        stir(each)
    found, want = step_gradients(policy), step_gradients(oracle)
    assert found.keys() == want.keys()
    for name, gradient in want.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_adapters_learn_and_the_backbone_never_changes(backbone, bitsandbytes, precision):
    """Not even its format, which bitsandbytes changes at the first pass if it may."""
    team = make_team(backbone, config=FOUR_BIT, precision=precision)
    policy = team.policies["llm_1"]
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert team.model.get_memory_footprint() < load_model(backbone)[0].get_memory_footprint()
    before, fixed = weights_of(policy), frozen_weights(team)
    learner = make_learner(policy, value_lr=0.1)
    for step in range(2):
        batch = make_batch(policy)
        assert step or (batch.exact_kl_BT == 0).all()
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    assert not [name for name, tensor in weights_of(policy).items() if torch.equal(tensor, before[name])]
    after = frozen_weights(team)
    assert [name for name, tensor in fixed.items() if tensor.dtype == torch.uint8]
    for name, tensor in fixed.items():
        assert after[name].dtype == tensor.dtype
        assert torch.equal(after[name], tensor), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_in_four_bits_trains_on_a_cpu(wide, bitsandbytes, tmp_path, monkeypatch, precision):
    (tmp_path / "my.jsonl").write_text("\n".join(json.dumps({"prompt": f"film {n}"}) for n in range(16)))
    without_report(monkeypatch)
    command = [
        *("train", "--task", "prompts", "--task.data", str(tmp_path / "my.jsonl"), "--judge", "regex:a"),
        *("--policy.kind", "lora_team", "--policy.model", str(wide), "--policy.device", "cpu"),
        *("--policy.precision", precision, "--lora.four-bit", "yes", "--lora.rank", "4", "--batch", "4"),
        *("--max-response", "3", "4", "--evaluation.every", "0", "--evaluation.queries", "2"),
        *("--iterations", "2", "--run", str(tmp_path / "run")),
    ]
    assert main(command) == 0
    assert len([row for row in read(tmp_path / "run") if "time/update/seconds" in row]) == 2
    assert (tmp_path / "run/policies/llm_1/adapter_model.safetensors").exists()


def test_weights_are_counted_without_reading_any(wide, tmp_path):
    """By hand: a layer has 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64; beside two, embedding, head, norm."""
    V = len(make_tokenizer())
    (tmp_path / "config.json").write_text((wide / "config.json").read_text())
    weights = sum(weight.numel() for weight in without_weights(tmp_path).parameters())
    assert weights == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * V * 64 + 64


def test_only_four_bits_need_bitsandbytes(wide, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    make_team(wide, ("llm_1",), config=LoRAConfig(four_bit="no"))
    with pytest.raises(ImportError, match=r"lora.four_bit needs bitsandbytes; pip install 'cory\[quant\]'"):
        make_team(wide, ("llm_1",), config=FOUR_BIT)


def test_a_device_that_bitsandbytes_does_not_serve_is_refused(wide, bitsandbytes, monkeypatch):
    monkeypatch.setattr(bitsandbytes, "supported_torch_devices", {"cuda"})
    with pytest.raises(ValueError, match=r"lora.four_bit: bitsandbytes .* does not run on cpu; say no"):
        make_team(wide, ("llm_1",), config=FOUR_BIT)
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"):
        LoraTeam.load(["llm_1"], wide, device="cuda:99", config=FOUR_BIT)


def test_a_merged_export_holds_whole_weights(wide, bitsandbytes, tmp_path):
    """The backbone is merged as it was before its quantisation."""
    policy = make_team(wide, ("llm_1",), config=FOUR_BIT).policies["llm_1"]
    policy.save_merged(tmp_path)
    merged, plain = load_model(tmp_path)[0], load_model(wide)[0]
    assert not getattr(merged, "is_quantized", False)
    assert torch.equal(merged.model.embed_tokens.weight, plain.model.embed_tokens.weight)
    assert torch.equal(merged.model.layers[0].mlp.up_proj.weight, plain.model.layers[0].mlp.up_proj.weight)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_on_a_gpu_sampler_and_learner_agree_too(wide, bitsandbytes, precision):
    """One row by itself is multiplied by another kernel."""
    team = make_team(wide, ("llm_1",), device=GPU, config=FOUR_BIT, precision=precision)
    policy = team.policies["llm_1"]
    stir(policy)
    batch = make_batch(policy)
    assert (batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max() < policy.tolerance
    one = sample_responses(policy, rows=slice(0, 1))
    assert torch.equal(one.response_BT[0], batch.response_BT[0])
    assert (one.logprobs_BT[0] - batch.old_logprobs_BT[0]).abs().max() < policy.tolerance
