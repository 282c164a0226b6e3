"""The vanilla HF baseline computes what the released code and our learner compute."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig

from benchmarks.speed.baselines import hf_ppo_update
from benchmarks.speed.baselines.hf_generate import HFBaseline, PolicyWithValueHead

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPE = GPT2Config(
    vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=64, bos_token_id=60, eos_token_id=60
)
LLAMA = LlamaConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    eos_token_id=60,
)
QUERIES = [[5, 6], [7, 8, 9, 10], [11, 12, 13]]


def policy_of(tensors: dict[str, torch.Tensor], prefix: str) -> PolicyWithValueHead:
    lm = GPT2LMHeadModel._from_config(SHAPE, attn_implementation="eager")
    weights = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    missing = lm.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    return PolicyWithValueHead(lm)


@pytest.mark.parametrize("chunk", [None, 3, 8])
@pytest.mark.parametrize("name", ["full_kl", "full_kl_score_norm"])
def test_every_number_of_the_released_step_is_reproduced_by_the_hf_baseline(name, chunk):
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    tensors = load_file(GOLDEN / f"{name}.safetensors")
    policy, reference = (policy_of(tensors, prefix) for prefix in ("init.policy.", "ref."))
    policy.value_head.load_state_dict({k: tensors[f"init.value_head.{k}"] for k in ("weight", "bias")})
    optimizer = torch.optim.Adam(policy.parameters(), lr=case["config"]["learning_rate"], fused=True)

    for k, step in enumerate(case["steps"]):
        at = {n.removeprefix(f"step{k}."): t for n, t in tensors.items() if n.startswith(f"step{k}.")}
        rows = hf_ppo_update.rows_of(step["queries"], step["responses"], pad=60)

        def close(ours_BT, theirs, tol=1e-5, rows=rows, at=at):
            theirs_N = at[theirs][at["mask"].bool()]
            torch.testing.assert_close(ours_BT[rows.mask_BT], theirs_N, rtol=tol, atol=tol)

        old = hf_ppo_update.statistics(policy, reference, rows, chunk)
        close(old.logprob_BT, "old_logprobs")
        close(old.ref_logprob_BT, "ref_logprobs")
        close(old.kl_BT, "kl")
        close(old.value_BT, "values")

        payoff_B = at.get("score_after_scaling", torch.tensor(step["scores"]))
        reward_BT = hf_ppo_update.token_rewards(payoff_B, old.kl_BT, rows.mask_BT, eta=step["kl_coef_before"])
        close(reward_BT, "rewards")
        advantage_BT, return_BT = hf_ppo_update.gae(reward_BT, old.value_BT, rows.mask_BT)
        close(return_BT, "returns")
        advantage_BT = hf_ppo_update.whiten(advantage_BT, rows.mask_BT)
        close(advantage_BT, "advantages")

        history = hf_ppo_update.update(policy, optimizer, rows, old, advantage_BT, return_BT, chunk)
        for got, want in zip(history, step["minibatch_losses"], strict=True):
            for ours, number in got.items():
                kind = "loss" if f"loss/{ours}" in want else "policy"
                assert number == pytest.approx(want[f"{kind}/{ours}"], rel=1e-4, abs=1e-4), ours

        weights = policy.lm.state_dict()
        after = {n.removeprefix("after.policy."): t for n, t in at.items() if n.startswith("after.policy.")}
        assert after
        for weight, want in after.items():
            torch.testing.assert_close(weights[weight], want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            policy.value_head.weight.detach(), at["after.value_head.weight"], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("config", [SHAPE, LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_iteration_plays_both_seats_and_moves_both_policies_but_not_the_reference(config, precision):
    torch.manual_seed(0)
    team = HFBaseline(config, response=4, precision=precision, chunk=2, lr=1e-2)
    before = team.reference.lm.get_input_embeddings().weight.clone()
    read, judged = [], []

    def observer_prompt(query, response):
        read.append((query, response))
        return [1, *query, *response]

    def judge(queries, responses):
        judged.append(responses)
        return [float(len(response)) for response in responses]

    seconds = team.iterate(QUERIES, observer_prompt, judge)

    assert list(seconds) == [
        "sample/pioneer_0", "sample/observer_1", "judge", "statistics", "update/llm_1", "update/llm_2"
    ]  # fmt: skip
    assert len(judged) == 2
    assert [query for query, _ in read] == QUERIES
    assert [ids for _, ids in read] == [[i for i in response if i != 60] for response in judged[0]]
    assert all(1 <= len(response) <= 4 for responses in judged for response in responses)
    assert torch.equal(team.reference.lm.get_input_embeddings().weight, before)
    for policy in team.policies.values():
        assert policy.value_head.weight.abs().max() > 0
        assert not torch.equal(policy.lm.get_input_embeddings().weight, before)


def test_a_response_ends_with_its_first_eos_and_prompts_of_other_lengths_do_not_change_it():
    torch.manual_seed(0)
    team = HFBaseline(SHAPE, response=20)
    policy = team.policies["llm_1"]
    with torch.no_grad():
        policy.lm.transformer.wte.weight[60] = 0.5 * policy.lm.transformer.ln_f.weight
        policy.lm.transformer.ln_f.bias.fill_(0.3)  # EOS: 32 * 0.5 * 0.3 above the others, 0.7 of the time

    responses = team.sample(policy, QUERIES * 20)

    ended = [response for response in responses if 60 in response]
    assert len(ended) > 30
    assert all(response.index(60) == len(response) - 1 for response in ended)
    single = hf_ppo_update.rows_of(QUERIES[:1], responses[:1], pad=60)
    among = hf_ppo_update.rows_of(QUERIES, responses[:3], pad=60)
    T = len(responses[0])
    torch.testing.assert_close(policy(among)[0][0, :T], policy(single)[0][0], rtol=1e-5, atol=1e-5)


def test_the_policies_change_seats_and_keep_their_optimisers():
    team = HFBaseline(SHAPE)
    kept = dict(team.optimizers)
    team.exchange()
    assert team.seating == {"pioneer_0": "llm_2", "observer_1": "llm_1"}
    assert team.optimizers == kept
    team.exchange()
    assert team.seating == {"pioneer_0": "llm_1", "observer_1": "llm_2"}
