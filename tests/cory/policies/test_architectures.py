"""Every kind of causal LM that is supported.

Tiny random models of each architecture, and a small pretrained Llama where the shared data is at hand.
"""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cory.batch import Rows
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.scoring import evaluate
from tests.helpers.batches import B, sampled, single_row_logprobs
from tests.helpers.models import CONFIGS, TIED, make_causal_lm

KINDS = [*CONFIGS, "stories260K"]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_scorer_give_the_logprobs_of_each_row_by_itself(kind, attention):
    """The sampler pads left and has a cache, the scorer pads right.

    Positions are learned (GPT-2) or rotary, over the whole head (Llama, Qwen) or a quarter of it (Pythia).
    """
    policy = make_causal_lm(kind, attention=attention)
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    scored = evaluate(policy, rows)
    assert (rows.response_length_B > 1).any()
    for i in range(B):
        want, length = single_row_logprobs(policy, rows, i), int(rows.response_length_B[i])
        torch.testing.assert_close(behaviour_BT[i, :length], want, atol=1e-5, rtol=0)
        torch.testing.assert_close(scored.logprobs_BT[i, :length], want, atol=1e-5, rtol=0)
    assert scored.exact_kl_BT.abs().max() < 1e-6


def test_a_pretrained_model_tells_a_story():
    """Random weights hide mistakes in positions; these do not.

    The model called directly needs 0.2233 nats a token for these lines; a uniform guess needs log 512 = 6.2.
    """
    policy = make_causal_lm("stories260K")
    policy.set_reference(policy)
    text = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    ids = torch.tensor([policy.tokenizer(text).input_ids])
    rows = Rows(
        prompt_BP=ids[:, :5],
        prompt_length_B=torch.tensor([5]),
        response_BT=ids[:, 5:],
        response_length_B=torch.tensor([ids.shape[1] - 5]),
    )
    assert evaluate(policy, rows).logprobs_BT.mean().item() == pytest.approx(-0.2233, abs=1e-3)


@pytest.mark.parametrize("kind", CONFIGS)
def test_ids_the_tokenizer_lacks_are_neither_sampled_nor_scored(kind):
    """A model's vocabulary is often padded to a round number. The head prefers those ids here."""
    policy = make_causal_lm(kind, wider=7)
    V = len(policy.tokenizer)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[V:] = 50.0
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    assert rows.response_BT.max() < V
    logits_KV = policy.logits(policy.hidden_states(rows))
    assert logits_KV.shape[1] == V
    scored_BT = evaluate(policy, rows).logprobs_BT
    torch.testing.assert_close(scored_BT, behaviour_BT, atol=1e-5, rtol=0)


def test_any_of_several_eos_ids_ends_a_response_and_an_eos_that_is_pad_is_scored():
    """Ids 3 to 40 end here, beside the tokenizer's own 0, which is its pad token as well."""
    policy = make_causal_lm("llama")
    policy.model.generation_config.eos_token_id = list(range(3, 41))
    policy = CausalLMPolicy("llm_1", policy.model, policy.tokenizer)
    assert policy.eos == {0, *range(3, 41)}
    assert policy.pad == 0
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[0] *= 4
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    last_B = rows.response_BT[torch.arange(B), rows.response_length_B - 1].tolist()
    assert 0 in last_B
    assert set(last_B) & set(range(3, 41))
    for i, length in enumerate(rows.response_length_B.tolist()):
        assert not policy.eos & set(rows.response_BT[i, : length - 1].tolist())
    assert (behaviour_BT[rows.mask_BT] < 0).all()
    assert (evaluate(policy, rows).logprobs_BT[rows.mask_BT] < 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_policy_comes_back_with_its_ties_in_plain_layout(kind, tmp_path):
    """By `restore` into an existing policy and by `from_pretrained`."""
    policy, other = make_causal_lm(kind), make_causal_lm(kind)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.1
    policy.save(tmp_path)
    other.restore(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is type(policy.model)
    tied = kind in (*TIED, "stories260K")
    assert (plain.get_output_embeddings().weight is plain.get_input_embeddings().weight) == tied
    for got in (other.model.state_dict(), plain.state_dict()):
        assert all(torch.equal(got[name], tensor) for name, tensor in policy.model.state_dict().items())
    assert torch.equal(other.value_head.weight, policy.value_head.weight)


def test_a_folder_of_another_model_is_not_restored(tmp_path):
    make_causal_lm("qwen3").save(tmp_path)
    with pytest.raises(ValueError, match="holds a Qwen3ForCausalLM of other shape than its LlamaFor"):
        make_causal_lm("llama").restore(tmp_path)


@pytest.mark.slow
def test_values_are_the_same_bits_in_another_process(tmp_path):
    """For every architecture at once."""
    want = {}
    for kind in CONFIGS:
        policy = make_causal_lm(kind)
        torch.nn.init.normal_(policy.value_head.weight)
        policy.save(tmp_path / kind)
        want[kind] = policy.values(policy.trunk(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0])
    code = (
        "import sys, torch; from safetensors.torch import save_file\n"
        "from cory.policies.causal_lm import CausalLMPolicy\n"
        "folder, *kinds = sys.argv[1:]; values = {}\n"
        "for kind in kinds:\n"
        "    p = CausalLMPolicy.load('llm_1', f'{folder}/{kind}')\n"
        "    s = p.trunk(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]\n"
        "    values[kind] = p.values(s).detach()\n"
        "save_file(values, folder + '/values.safetensors')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), *CONFIGS], check=True, capture_output=True)
    found = load_file(tmp_path / "values.safetensors")
    assert all(torch.equal(found[kind], values_L) for kind, values_L in want.items())
