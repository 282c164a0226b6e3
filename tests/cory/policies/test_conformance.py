"""A policy has the log-probs of the whole model, or is refused in one sentence.

The oracle is `model(input_ids).logits` of each row by itself. Shapes: B rows, T response tokens.
"""

import json
import math

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from cory.algorithms import ppo
from cory.batch import Rows
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.chunked_loss import KLLoss
from cory.policies.head import Head, LogitTransform
from cory.policies.loading import load_model
from cory.policies.scoring import evaluate
from tests.helpers.batches import B, make_batch, sampled, single_row_logprobs
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import gapped_tokenizer, make_tokenizer, model_logits, save_backbone, stir

SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.3, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16, "partial_rotary_factor": 1.0,
}  # fmt: skip
TRANSFORMS = {
    "granite": ({"logits_scaling": 8.0}, LogitTransform(scale=1 / 8)),
    "cohere": ({"logit_scale": 0.0625}, LogitTransform(scale=1 / 16)),
    "gemma2": ({"head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 8}, LogitTransform(cap=3.0)),
    "minicpm3": (
        {
            "dim_model_base": 8, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
            "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 8, "head_dim": 4,
        },
        LogitTransform(scale=1 / 4),
    ),
    "llama": ({}, LogitTransform()),
}  # fmt: skip


def make_hf_model(kind: str, **shape):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=len(make_tokenizer()), **SHAPE | shape)
    return AutoModelForCausalLM.from_config(config).eval()


def make(kind: str, **shape) -> CausalLMPolicy:
    policy = CausalLMPolicy("llm_1", make_hf_model(kind, **shape), make_tokenizer())
    policy.set_reference(policy)
    return policy


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_scale_and_soft_cap_of_a_model_are_measured_and_its_logprobs_are_the_models(kind):
    shape, transform = TRANSFORMS[kind]
    policy = make(kind, **shape)
    assert policy.head.transform == pytest.approx(transform, rel=1e-6)
    rows, behaviour_BT = sampled(policy)
    scored_BT = evaluate(policy, rows).logprobs_BT
    for i in range(B):
        want, length = single_row_logprobs(policy, rows, i), int(rows.response_length_B[i])
        torch.testing.assert_close(behaviour_BT[i, :length], want, atol=1e-5, rtol=0)
        torch.testing.assert_close(scored_BT[i, :length], want, atol=1e-5, rtol=0)


def test_a_soft_cap_that_small_logits_do_not_show_is_measured():
    """Logits of some 0.001 and a cap of 30 differ from those without by 1e-13."""
    policy = make("gemma2", head_dim=8, final_logit_softcapping=30.0, initializer_range=1e-3)
    assert policy.head.transform.cap == 30.0


@pytest.mark.parametrize("kind", ["granite", "gemma2"])
def test_loss_entropy_kl_and_gradients_pass_through_the_transform(kind):
    """Against the whole model's logits and autograd, with an entropy bonus and the full KL in the loss."""
    shape, _ = TRANSFORMS[kind]
    policy, reference = make(kind, **shape), make(kind, **shape)
    policy.set_reference(reference.requires_grad_(False))
    stir(policy)
    with torch.no_grad():
        policy.value_head.weight.zero_()  # its loss would reach the trunk
    batch = make_batch(policy)
    targets = advantage_of(make_learner(policy), batch)._asdict()
    config = ppo.Config(entropy_coef=0.1)
    sums = policy(
        batch, targets, lambda tokens: ppo.token_loss(tokens, config), kl_loss=KLLoss(kind="full", coef=0.5)
    )
    sums.loss.backward()
    got = {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}
    policy.zero_grad()

    entropy, kl, logprob = [], [], []
    for i in range(B):
        start, length = int(batch.prompt_length_B[i]), int(batch.response_length_B[i])
        ids = torch.cat([batch.prompt_BP[i, :start], batch.response_BT[i, :length]])
        ours, theirs = (
            p.model(ids[None, :-1]).logits[0, start - 1 :].log_softmax(-1) for p in (policy, reference)
        )
        entropy.append(-(ours.exp() * ours).sum(-1))
        kl.append((ours.exp() * (ours - theirs)).sum(-1))
        logprob.append(ours.gather(1, ids[start:, None])[:, 0])
    torch.testing.assert_close(batch.exact_kl_BT[batch.mask_BT], torch.cat(kl).detach(), atol=1e-5, rtol=1e-4)
    advantage_K = targets["advantage_BT"][batch.mask_BT]
    loss = (-advantage_K * torch.cat(logprob) - 0.1 * torch.cat(entropy) + 0.5 * torch.cat(kl)).sum()
    loss.backward()  # PPO's first step: all ratios are 1
    for name, parameter in policy.model.named_parameters():
        if "layers.0.self_attn.q_proj" in name or "lm_head" in name:
            torch.testing.assert_close(got[name], parameter.grad, atol=2e-4, rtol=2e-3, msg=name)


def test_a_head_of_several_layers_is_the_module_that_reads_the_last_hidden_states():
    policy = make("bert", is_decoder=True)
    assert policy.head.module == "cls"
    rows, behaviour_BT = sampled(policy)
    want = single_row_logprobs(policy, rows, 0)
    torch.testing.assert_close(behaviour_BT[0, : len(want)], want, atol=1e-5, rtol=0)


def test_logits_changed_otherwise_are_refused_with_the_class():
    class Clamped(type(make_hf_model("llama"))):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits.clamp(-2, 2)
            return out

    model = make_hf_model("llama")
    model.__class__ = Clamped
    with pytest.raises(ValueError, match=r"Clamped cannot be a policy \(it changes its logits in a"):
        CausalLMPolicy("llm_1", model, make_tokenizer())


def test_rows_of_a_model_that_reads_ahead_are_refused():
    with pytest.raises(ValueError, match=r"BertLMHeadModel cannot be a policy \(log-probs of rows"):
        make("bert", is_decoder=False)


def test_a_model_that_changes_its_weights_in_a_pass_is_refused():
    shape = {"attention_hidden_size": 32, "context_length": 64, "num_hidden_layers": 4, "rescale_every": 2}
    with pytest.raises(ValueError, match=r"RwkvForCausalLM cannot be a policy \(a forward pass changes"):
        make("rwkv", **shape)


def test_a_model_without_a_cache_of_transformers_is_decoded_without_one():
    policy = make("mamba", state_size=8)
    assert not policy.caches
    rows, behaviour_BT = sampled(policy)
    assert (rows.response_length_B > 1).any()
    for i in range(B):
        want, length = single_row_logprobs(policy, rows, i), int(rows.response_length_B[i])
        torch.testing.assert_close(behaviour_BT[i, :length], want, atol=1e-5, rtol=0)


def rows_of(lengths: list[int]) -> Rows:
    ids = torch.randint(3, 90, (2, 40), generator=torch.Generator().manual_seed(0))
    return Rows(
        prompt_BP=ids[: len(lengths), :36],
        prompt_length_B=torch.tensor(lengths),
        response_BT=ids[: len(lengths), 36:],
        response_length_B=torch.full((len(lengths),), 4),
    )


def test_positions_that_depend_on_the_batch_end_the_window_where_they_begin_to():
    """Rotary factors of longrope are chosen by the longest row: above 16 tokens for all rows or for none."""
    with pytest.warns(UserWarning, match="Phi3ForCausalLM scales positions .* beyond 16 tokens"):
        policy = make("phi3", original_max_position_embeddings=16, rope_parameters=LONGROPE)
    assert policy.window == 16
    alone, beside = (evaluate(policy, rows_of(lengths)).logprobs_BT[0] for lengths in ([3], [3, 12]))
    torch.testing.assert_close(alone, beside, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="may reach 24 tokens; policy 'llm_1' has a window of 16"):
        evaluate(policy, rows_of([3, 20]))


def test_a_model_whose_outputs_are_tuples_is_made_to_name_them(tmp_path):
    folder = save_backbone("llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"return_dict": False}))
    want = CausalLMPolicy.load("x", save_backbone("llama", tmp_path / "other"))
    got = CausalLMPolicy.load("x", folder)
    assert torch.equal(model_logits(got.model), model_logits(want.model))


def test_a_default_dtype_and_inference_mode_that_training_cannot_have_are_refused():
    model = make_hf_model("llama")
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.raises(ValueError, match=r"default dtype is torch.bfloat16.*set_default_dtype"):
            CausalLMPolicy("x", model, make_tokenizer())
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"made within torch\.inference_mode"):
        CausalLMPolicy("x", model, make_tokenizer())


def test_hooks_of_the_check_are_gone_afterwards():
    model = make("gemma2", head_dim=8, final_logit_softcapping=3.0).model
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_transform_is_the_formula():
    logits = torch.tensor([-1000.0, -1.0, 0.0, 2.0, 1000.0])
    got = LogitTransform(scale=0.5, cap=3.0)(logits)
    assert got.tolist() == pytest.approx([-3, 3 * math.tanh(-0.5 / 3), 0, 3 * math.tanh(1 / 3), 3])
    assert LogitTransform()(logits) is logits
    assert Head("lm_head", LogitTransform()).transform.cap == math.inf


def save_adapter(base, folder, config, *, tokenizer=None):
    """A stirred adapter on `base`, perhaps with tokens of its own; its logits."""
    model = AutoModelForCausalLM.from_pretrained(base)
    if tokenizer:
        model.resize_token_embeddings(max(tokenizer.get_vocab().values()) + 1)
    adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn(weight.shape, generator=generator)
    adapted.save_pretrained(folder)
    if tokenizer:
        tokenizer.save_pretrained(folder)
    return model_logits(adapted)


ADAPTERS = {
    "LoRA": {"target_modules": ["q_proj"]},
    "LoRA on the embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "DoRA": {"target_modules": ["q_proj"], "use_dora": True},
    "rsLoRA": {"target_modules": ["q_proj"], "use_rslora": True},
    "embedding saved whole": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "some tokens": {"target_modules": ["q_proj"], "trainable_token_indices": [3, 5, 17]},
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_policy_on_an_adapter_of_a_tied_model_is_the_adapted_model_and_stays_it_when_saved(kind, tmp_path):
    model = make_hf_model("llama", tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "base")
    make_tokenizer().save_pretrained(tmp_path / "base")
    config = LoraConfig(r=4, task_type="CAUSAL_LM", **ADAPTERS[kind])
    want = save_adapter(tmp_path / "base", tmp_path / "adapter", config)
    assert (want - model_logits(model)).abs().max() > 0.01
    policy = CausalLMPolicy.load("x", tmp_path / "adapter")
    torch.testing.assert_close(model_logits(policy.model), want, atol=1e-4, rtol=1e-4)
    policy.save(tmp_path / "saved")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(model_logits(plain), want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("gap", [0, 3])
def test_an_adapter_with_more_ids_than_its_base_is_loaded_with_them(gap, tmp_path):
    base = save_backbone("llama", tmp_path / "base")
    config = LoraConfig(
        r=4, task_type="CAUSAL_LM", target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]
    )
    want = save_adapter(base, tmp_path / "adapter", config, tokenizer=gapped_tokenizer(gap))
    policy = CausalLMPolicy.load("x", tmp_path / "adapter")
    assert policy.vocab_size == len(make_tokenizer()) + gap + 1
    torch.testing.assert_close(model_logits(policy.model), want, atol=1e-4, rtol=1e-4)


def test_an_adapter_that_no_weights_can_hold_is_refused(tmp_path):
    base = save_backbone("llama", tmp_path / "base")
    save_adapter(base, tmp_path / "adapter", PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ValueError, match="LlamaForCausalLM with PROMPT_TUNING cannot be merged"):
        load_model(tmp_path / "adapter")


def test_a_merge_that_changes_the_model_is_refused(tmp_path, monkeypatch):
    from peft import PeftModel

    base = save_backbone("llama", tmp_path / "base")
    save_adapter(
        base, tmp_path / "adapter", LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj"])
    )
    monkeypatch.setattr(PeftModel, "merge_and_unload", lambda self: self.unload(), raising=False)
    with pytest.raises(ValueError, match="merging the adapter into its base moves logits by up to"):
        load_model(tmp_path / "adapter")


def test_a_folder_without_tokenizer_files_is_refused(tmp_path):
    make_hf_model("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no tokenizer files; save its tokenizer"):
        load_model(tmp_path)


def test_a_damaged_value_head_is_named(tmp_path):
    folder = save_backbone("llama", tmp_path)
    (folder / "value_head.safetensors").write_text("junk")
    with pytest.raises(ValueError, match=r"value head .*value_head.safetensors cannot be loaded .*remove"):
        CausalLMPolicy.load("x", folder)


def test_a_value_head_of_another_width_is_named(tmp_path):
    from safetensors.torch import save_file

    folder = save_backbone("llama", tmp_path)
    save_file(nn.Linear(7, 1).state_dict(), folder / "value_head.safetensors")
    with pytest.raises(ValueError, match=r"value_head.safetensors cannot be loaded .*size mismatch"):
        CausalLMPolicy.load("x", folder)
