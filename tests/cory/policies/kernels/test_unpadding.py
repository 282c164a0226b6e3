"""Per-token modules that skip padding and unused tokens give the hidden states and gradients of all tokens.

The oracle is the same model without an index of tokens, through which the hooks let everything pass.
"""

import pytest
import torch
from transformers import AutoModelForCausalLM, OPTConfig

from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.kernels import unpadding
from tests.helpers.batches import sampled
from tests.helpers.models import CONFIGS, make_causal_lm, make_tokenizer


def states_of_all_tokens(policy, rows):
    states_BLD = policy.trunk(input_ids=rows.input_ids(), use_cache=False).last_hidden_state
    return states_BLD.flatten(0, 1)[rows.predicting_positions()]


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
    policy = make_causal_lm(kind, attention=attention, gradient_checkpointing=recompute)
    rows, _ = sampled(policy)
    want_KD = states_of_all_tokens(policy, rows)
    got_KD = policy.hidden_states(rows)
    torch.testing.assert_close(got_KD, want_KD, atol=1e-5, rtol=1e-5)
    want, got = gradients(policy, want_KD), gradients(policy, got_KD)
    assert want.keys() == got.keys()
    for name, grad in want.items():
        torch.testing.assert_close(got[name], grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("count", "want"), [(1, 1), (31, 31), (32, 32), (33, 34), (45, 46), (903, 928), (2510, 2560)]
)
def test_round_numbers_have_five_binary_digits_and_are_a_sixteenth_more_at_most(count, want):
    assert unpadding.round_up(count, bits=5) == want


def test_real_tokens_come_first_then_padding_up_to_a_round_number():
    """33 of 40 tokens are real, and 34 are computed; of 33, all."""
    real_BL = torch.ones(2, 20, dtype=torch.bool)
    real_BL[0, 15:] = real_BL[1, 18:] = False
    index = unpadding.TokenIndex.of(real_BL, torch.tensor([0]))
    assert index.real_N.tolist() == [*range(15), *range(20, 38), 15]
    real_BL = torch.ones(1, 33, dtype=torch.bool)
    assert unpadding.TokenIndex.of(real_BL, torch.tensor([0])).real_N.tolist() == [*range(33)]


def test_used_tokens_come_first_then_unused_ones_up_to_a_round_number():
    """33 of 40 are used: all of them, then the first that is not."""
    predicting_K = torch.arange(39, 6, -1)
    index = unpadding.TokenIndex.of(torch.ones(2, 20, dtype=torch.bool), predicting_K)
    assert index.predicting_N.tolist() == [*range(7, 40), 0]


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_projection_computes_the_indexed_tokens_and_no_other(kind):
    policy = make_causal_lm(kind)
    rows, _ = sampled(policy)
    modules = unpadding.token_wise(policy.model)
    computed: dict[str, list[int]] = {"inner": [], "last": []}
    spies = [
        part.register_forward_hook(  # in front of the hooks that put the tokens back in place
            lambda _, x, out, name=name: computed[name].append(out.shape[:-1].numel()), prepend=True
        )
        for name, parts in modules._asdict().items()
        for module in parts
        for part in linears(module)
    ]
    policy.hidden_states(rows)
    real = int((rows.prompt_length_B + rows.response_length_B - 1).sum())
    assert real < rows.input_ids().numel()
    assert computed == {
        "inner": [unpadding.round_up(real, bits=5)] * len(computed["inner"]),
        "last": [unpadding.round_up(len(rows.predicting_positions()), bits=5)] * len(computed["last"]),
    }
    everything = linears(policy.model.base_model.get_submodule("h" if kind == "gpt2" else "layers"))
    assert len(spies) == len(computed["inner"]) + len(computed["last"]) == len(everything)
    beside_the_mlp = 1 if kind in ("gpt2", "pythia") else 2  # others have a projection for queries only
    assert len(computed["last"]) == len(linears(modules.last[0])) + beside_the_mlp


def test_sampling_computes_no_padding_of_prompts_either():
    policy = make_causal_lm("gpt2")
    seen: list[int] = []
    policy.model.transformer.h[0].mlp.c_fc.register_forward_pre_hook(
        lambda _, x: seen.append(x[0].shape[:-1].numel())
    )
    rows, _ = sampled(policy)
    assert seen[0] == int(rows.prompt_length_B.sum()) < rows.prompt_BP.numel()


def test_a_model_whose_layers_have_no_mlp_computes_everything():
    shape = OPTConfig(
        vocab_size=300, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=4,
        word_embed_proj_dim=32, eos_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = CausalLMPolicy("llm_1", AutoModelForCausalLM.from_config(shape).eval(), make_tokenizer())
    assert unpadding.token_wise(policy.model) == ([], [])
    rows, _ = sampled(policy)
    torch.testing.assert_close(policy.hidden_states(rows), states_of_all_tokens(policy, rows))


def test_inputs_of_another_shape_pass_through_unchanged():
    policy = make_causal_lm("llama")
    linear = policy.model.model.layers[0].self_attn.q_proj
    real_BL = torch.zeros(2, 5, dtype=torch.bool)
    real_BL[0, 0] = real_BL[1, 2] = True
    with torch.no_grad(), policy.cpu_kernels.unpadded(real_BL, torch.tensor([0])):
        indexed = linear(torch.ones(2, 5, 32))
        other = linear(torch.ones(5, 2, 32))
        named = linear(input=torch.ones(2, 5, 32))
    assert indexed.flatten(0, 1).any(-1).nonzero()[:, 0].tolist() == [0, 7]
    assert bool(other.any(-1).all())
    assert bool(named.any(-1).all())


def hooks_of(model) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


def test_hooks_are_installed_once_and_passes_add_none():
    policy = make_causal_lm("gpt2")
    modules = unpadding.token_wise(policy.model)
    assert hooks_of(policy.model) == 2 * (len(modules.inner) + len(modules.last))
    before = hooks_of(policy.model)
    rows, _ = sampled(policy)
    gradients(policy, policy.hidden_states(rows))
    assert hooks_of(policy.model) == before


def test_a_pass_that_fails_leaves_no_index_behind():
    policy = make_causal_lm("gpt2")
    rows, _ = sampled(policy)
    want_KD, whole_KD = policy.hidden_states(rows), states_of_all_tokens(policy, rows)
    before = hooks_of(policy.model)
    stop = policy.model.transformer.ln_f.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        policy.hidden_states(rows)
    stop.remove()
    assert hooks_of(policy.model) == before
    everything = policy.model.base_model(input_ids=rows.input_ids(), use_cache=False).last_hidden_state
    assert torch.equal(everything.flatten(0, 1)[rows.predicting_positions()], whole_KD)
    assert torch.equal(policy.hidden_states(rows), want_KD)
