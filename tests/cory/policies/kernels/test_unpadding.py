"""Attention alone reads padding and what nobody asks for; states and gradients are as if all did.

The same model without any narrowing is what it is held against.
"""

import pytest
import torch
from transformers import AutoModelForCausalLM, OPTConfig

from cory.policies.kernels import unpadding
from cory.policies.causal_lm import CausalLMPolicy
from tests.cory.conftest import make_tokenizer
from tests.cory.policies.test_architectures import CONFIGS, make_policy, sampled


def states_in_full(policy, rows):
    return policy.trunk(input_ids=rows.read(), use_cache=False).last_hidden_state.flatten(0, 1)[
        rows.deciding()
    ]


def gradients(policy, states_KD):
    policy.zero_grad(set_to_none=True)
    weights_KD = torch.randn(states_KD.shape, generator=torch.Generator().manual_seed(0))
    (states_KD * weights_KD).sum().backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


def linears(module):
    return [part for part in module.modules() if getattr(getattr(part, "weight", None), "ndim", 0) == 2]


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_states_and_gradients_are_those_of_all_tokens(kind, attention, recompute):
    policy = make_policy(kind, attention=attention, gradient_checkpointing=recompute)
    rows, _ = sampled(policy)
    want_KD = states_in_full(policy, rows)
    got_KD = policy.hidden_states(rows)
    torch.testing.assert_close(got_KD, want_KD, atol=1e-5, rtol=1e-5)
    want, got = gradients(policy, want_KD), gradients(policy, got_KD)
    assert want.keys() == got.keys()
    for name, grad in want.items():
        torch.testing.assert_close(got[name], grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("count", "want"), [(1, 1), (31, 31), (32, 32), (33, 34), (45, 46), (903, 928), (2510, 2560)]
)
def test_round_numbers_have_five_digits_and_are_a_sixteenth_more_at_most(count, want):
    assert unpadding.rounded(count, digits=5) == want


def test_what_is_read_comes_first_then_padding_to_a_round_number():
    """33 of 40 tokens are no padding, and 34 are read; of 33, all."""
    read_BL = torch.ones(2, 20, dtype=torch.bool)
    read_BL[0, 15:] = read_BL[1, 18:] = False
    assert unpadding.Wanted.of(read_BL, torch.tensor([0])).read_N.tolist() == [*range(15), *range(20, 38), 15]
    read_BL = torch.ones(1, 33, dtype=torch.bool)
    assert unpadding.Wanted.of(read_BL, torch.tensor([0])).read_N.tolist() == [*range(33)]


def test_behind_the_last_attention_stand_the_tokens_that_are_asked_for_and_others_to_a_round_number():
    """33 of 40 are asked for, in an order of their own: all of them, then the first that is not."""
    asked_N = torch.arange(39, 6, -1)
    wanted = unpadding.Wanted.of(torch.ones(2, 20, dtype=torch.bool), asked_N)
    assert wanted.asked_N.tolist() == asked_N.tolist()
    assert wanted.last_N.tolist() == [*range(7, 40), 0]


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_projection_reads_the_tokens_that_are_wanted_and_no_other(kind):
    policy = make_policy(kind)
    rows, _ = sampled(policy)
    modules = unpadding.token_wise(policy.model)
    read: dict[str, list[int]] = {"inner": [], "last": []}
    spies = [
        part.register_forward_hook(lambda _, x, out, name=name: read[name].append(out.shape[:-1].numel()))
        for name, parts in modules._asdict().items()
        for module in parts
        for part in linears(module)
    ]
    policy.hidden_states(rows)
    real = int((rows.prompt_length_B + rows.response_length_B - 1).sum())
    assert real < rows.read().numel()
    assert read == {
        "inner": [unpadding.rounded(real, digits=5)] * len(read["inner"]),
        "last": [unpadding.rounded(len(rows.deciding()), digits=5)] * len(read["last"]),
    }
    everything = linears(policy.model.base_model.get_submodule("h" if kind == "gpt2" else "layers"))
    assert len(spies) == len(read["inner"]) + len(read["last"]) == len(everything)
    beside_the_mlp = 1 if kind in ("gpt2", "pythia") else 2  # in others queries stand by themselves
    assert len(read["last"]) == len(linears(modules.last[0])) + beside_the_mlp


def test_sampling_reads_no_padding_of_prompts_either():
    policy = make_policy("gpt2")
    seen: list[int] = []
    policy.model.transformer.h[0].mlp.c_fc.register_forward_pre_hook(
        lambda _, x: seen.append(x[0].shape[:-1].numel())
    )
    rows, _ = sampled(policy)
    assert seen[0] == int(rows.prompt_length_B.sum()) < rows.prompt_BP.numel()


def test_a_model_whose_layers_have_no_mlp_reads_everything():
    shape = OPTConfig(
        vocab_size=300, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=4,
        word_embed_proj_dim=32, eos_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = CausalLMPolicy("llm_1", AutoModelForCausalLM.from_config(shape).eval(), make_tokenizer())
    assert unpadding.token_wise(policy.model) == ([], [])
    rows, _ = sampled(policy)
    torch.testing.assert_close(policy.hidden_states(rows), states_in_full(policy, rows))


def test_what_comes_in_another_shape_is_read_as_it_is():
    linear, shape = torch.nn.Linear(4, 3), torch.Size((2, 5))
    with unpadding.reading_only(linear, torch.tensor([0, 7]), shape):
        whole = linear(torch.ones(2, 5, 4))
        other = linear(torch.ones(5, 2, 4))
        named = linear(input=torch.ones(2, 5, 4))
    assert whole.flatten(0, 1).any(-1).nonzero()[:, 0].tolist() == [0, 7]
    assert bool(other.all())
    assert bool(named.all())


def test_a_pass_that_fails_leaves_no_hook_behind():
    policy = make_policy("gpt2")
    rows, _ = sampled(policy)
    want_KD = policy.hidden_states(rows)
    stop = policy.model.transformer.ln_f.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        policy.hidden_states(rows)
    stop.remove()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in policy.model.modules())
    assert torch.equal(policy.hidden_states(rows), want_KD)
