"""Every kind of causal LM we promise, its class unmodified: INVARIANTS 1, 3, 4, 10, 11.

Tiny random models of each architecture, and a small pretrained Llama where the shared data is at hand.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from cory import rng
from cory.batch import Rows
from cory.policies import precision
from cory.policies.causal_lm import CausalLMPolicy
from tests.cory.conftest import make_tokenizer

STORIES = Path(__file__).parents[3] / "shared" / "data" / "stories260K"
CONFIGS = {
    "gpt2": GPT2Config,
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "pythia": GPTNeoXConfig,
}
TIED = ("gpt2", "qwen2")
KINDS = [*CONFIGS, "stories260K"]
LENGTHS = [5, 2, 3, 5, 1, 4]
B, T = len(LENGTHS), 7


def make_policy(
    kind: str, *, attention: str = "eager", wider: int = 0, shape=None, **options
) -> CausalLMPolicy:
    """`wider`: ids the model has and the tokenizer lacks; `shape`: more of its configuration."""
    if kind == "stories260K":
        if not STORIES.exists():
            pytest.skip(f"no pretrained model at {STORIES}")
        policy = CausalLMPolicy.load("llm_1", STORIES, **options)
        policy.model.set_attn_implementation(attention)
        return policy
    tokenizer = make_tokenizer()
    config = CONFIGS[kind](
        vocab_size=len(tokenizer) + wider, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=0, initializer_range=0.3,
        tie_word_embeddings=kind in TIED, **(shape or {}),
    )  # fmt: skip
    if kind != "gpt2":
        config.intermediate_size = 64
    if kind in ("llama", "qwen2", "qwen3"):
        config.num_key_value_heads = 2
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return CausalLMPolicy("llm_1", model, tokenizer, **options)


def sampled(policy: CausalLMPolicy, *, poison: int = 9) -> tuple[Rows, torch.Tensor]:
    """Responses to prompts of unequal lengths with `poison` behind them, and the sampler's log-probs."""
    length_B = torch.tensor(LENGTHS)
    prompt_BP = torch.tensor(np.random.default_rng(0).integers(3, 40, (B, 5)))
    prompt_BP = torch.where(torch.arange(5) < length_B[:, None], prompt_BP, poison)
    told = policy.sample(
        prompt_BP,
        length_B,
        uniforms_BT=torch.from_numpy(rng.uniforms(("test",), np.arange(B), T)),
        caps_B=torch.tensor([7, 4, 6, 5, 7, 3]),
    )
    rows = Rows(
        prompt_BP=prompt_BP,
        prompt_length_B=length_B,
        response_BT=told.response_BT,
        response_length_B=told.response_length_B,
    )
    return rows, told.logprobs_BT


@torch.no_grad()
def alone(policy: CausalLMPolicy, rows: Rows, i: int) -> torch.Tensor:
    """Log-probs of row i from the whole model on that row alone, without padding, mask or cache."""
    p, r = int(rows.prompt_length_B[i]), int(rows.response_length_B[i])
    response = rows.response_BT[i, :r]
    ids = torch.cat([rows.prompt_BP[i, :p], response])[None]
    logits = policy.model(input_ids=ids).logits[0, p - 1 : -1, : policy.vocab_size].double()
    return logits.log_softmax(-1).gather(1, response[:, None])[:, 0].float()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_scorer_give_the_logprobs_of_each_row_alone(kind, attention):
    """INVARIANTS 1, 4: the sampler pads left and keeps a cache, the scorer pads right; positions are learned
    (GPT-2) or rotary, the whole head (Llama, Qwen) or a quarter of it (Pythia)."""
    policy = make_policy(kind, attention=attention)
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    scored = policy.evaluate(rows)
    assert (rows.response_length_B > 1).any()
    for i in range(B):
        want, length = alone(policy, rows, i), int(rows.response_length_B[i])
        torch.testing.assert_close(behaviour_BT[i, :length], want, atol=1e-5, rtol=0)
        torch.testing.assert_close(scored.logprobs_BT[i, :length], want, atol=1e-5, rtol=0)
    assert scored.exact_kl_BT.abs().max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_long_rows_are_attended_to_in_another_way_with_the_same_logprobs(kind, monkeypatch):
    """What is read of them at once, here 4 tokens or more; what is decoded token by token is not."""
    policy, calls = make_policy(kind), []
    plain = torch.nn.functional.scaled_dot_product_attention

    def counted(query, *given, **named):
        calls.append(query.shape[2])
        return plain(query, *given, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    monkeypatch.setattr(precision, "LONG", 4)
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    scored = policy.evaluate(rows)
    assert calls
    assert min(calls) >= 4
    assert policy.model.config._attn_implementation == "eager"
    monkeypatch.setattr(precision, "LONG", 256)
    for i in range(B):
        want, length = alone(policy, rows, i), int(rows.response_length_B[i])
        torch.testing.assert_close(behaviour_BT[i, :length], want, atol=1e-5, rtol=0)
        torch.testing.assert_close(scored.logprobs_BT[i, :length], want, atol=1e-5, rtol=0)


def test_a_pretrained_model_tells_a_story():
    """Random weights hide mistakes in positions; these do not. The model, asked directly, needs 0.2233 nats a
    token for these lines of its own; one that guesses, log 512 = 6.2."""
    policy = make_policy("stories260K")
    policy.set_reference(policy)
    text = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    ids = torch.tensor([policy.tokenizer(text).input_ids])
    rows = Rows(
        prompt_BP=ids[:, :5],
        prompt_length_B=torch.tensor([5]),
        response_BT=ids[:, 5:],
        response_length_B=torch.tensor([ids.shape[1] - 5]),
    )
    assert policy.evaluate(rows).logprobs_BT.mean().item() == pytest.approx(-0.2233, abs=1e-3)


@pytest.mark.parametrize("kind", CONFIGS)
def test_ids_the_tokenizer_lacks_are_neither_sampled_nor_scored(kind):
    """A model's vocabulary is often padded to a round number. The head is made to want nothing else."""
    policy = make_policy(kind, wider=7)
    V = len(policy.tokenizer)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[V:] = 50.0
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    assert rows.response_BT.max() < V
    logits_KV = policy.logits(policy.hidden_states(rows))
    assert logits_KV.shape[1] == V
    scored_BT = policy.evaluate(rows).logprobs_BT
    torch.testing.assert_close(scored_BT, behaviour_BT, atol=1e-5, rtol=0)


def test_any_of_several_eos_ids_ends_a_response_and_an_eos_that_is_pad_is_scored():
    """INVARIANTS 3. Ids 3 to 40 end here, beside the tokenizer's own 0, which is its pad token as well."""
    policy = make_policy("llama")
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
    assert (policy.evaluate(rows).logprobs_BT[rows.mask_BT] < 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_policy_comes_back_with_its_ties_in_plain_layout(kind, tmp_path):
    """INVARIANTS 11: `restore` into the living policy and `from_pretrained` both."""
    policy, other = make_policy(kind), make_policy(kind)
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
    make_policy("qwen3").save(tmp_path)
    with pytest.raises(ValueError, match="holds a Qwen3ForCausalLM of other shape than its LlamaFor"):
        make_policy("llama").restore(tmp_path)


def test_values_are_the_same_bits_in_another_process(tmp_path):
    """INVARIANTS 10, for every architecture at once."""
    want = {}
    for kind in CONFIGS:
        policy = make_policy(kind)
        torch.nn.init.normal_(policy.value_head.weight)
        policy.save(tmp_path / kind)
        want[kind] = policy.values(policy.trunk(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0])
    code = (
        "import sys, torch; from safetensors.torch import save_file\n"
        "from cory.policies.causal_lm import CausalLMPolicy\n"
        "folder, *kinds = sys.argv[1:]; told = {}\n"
        "for kind in kinds:\n"
        "    p = CausalLMPolicy.load('llm_1', f'{folder}/{kind}')\n"
        "    s = p.trunk(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]\n"
        "    told[kind] = p.values(s).detach()\n"
        "save_file(told, folder + '/told.safetensors')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), *CONFIGS], check=True, capture_output=True)
    told = load_file(tmp_path / "told.safetensors")
    assert all(torch.equal(told[kind], values) for kind, values in want.items())
