"""The vanilla HF baseline: its responses, and an iteration of both policies."""

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.speed.baselines.hf import HFPolicy
from benchmarks.speed.workers import HFWorker
from examples.cory_single_file import Rollout

EOS = 60
SHAPE = GPT2Config(vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=64, eos_token_id=EOS)


def test_a_response_ends_with_its_first_eos_and_padding_does_not_change_its_logits():
    torch.manual_seed(0)
    policy = HFPolicy(GPT2LMHeadModel._from_config(SHAPE, attn_implementation="eager"))
    with torch.no_grad():
        policy.model.transformer.wte.weight[EOS] = 0.5 * policy.model.transformer.ln_f.weight
        policy.model.transformer.ln_f.bias.fill_(0.3)  # EOS: 32 * 0.5 * 0.3 above the others, 0.7 of the time
    prompt_BP = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10], [0, 11, 12, 13]] * 20)
    response_BT, mask_BT = policy.respond(prompt_BP, prompt_BP > 0, torch.full((60,), 20), [EOS])
    responses = [row[mask].tolist() for row, mask in zip(response_BT, mask_BT, strict=True)]
    ended = [response for response in responses if EOS in response]
    assert len(ended) > 30
    assert all(response.index(EOS) == len(response) - 1 for response in ended)
    assert all(len(response) == 20 for response in responses if EOS not in response)

    T = len(responses[0])
    padded = Rollout(prompt_BP, prompt_BP > 0, response_BT, mask_BT, torch.zeros(60))
    single_BP = prompt_BP[:1, 2:]
    single = Rollout(single_BP, single_BP > 0, response_BT[:1, :T], mask_BT[:1, :T], torch.zeros(1))
    torch.testing.assert_close(policy(padded)[0][0, :T], policy(single)[0][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_iteration_moves_both_policies_and_not_the_reference_and_then_they_change_seats(precision):
    workload = {"layers": 1, "width": 32, "heads": 2, "vocab_size": 200, "batch": 6, "response": 4}
    job = {"workload": workload, "precision": precision, "threads": 1, "device": "cpu"}
    worker = HFWorker(job, Path())
    reference = worker.learners["llm_1"].reference
    before = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    figures = worker.iterate()
    assert figures["samples"] == 12
    assert 12 <= figures["tokens"] <= 12 * 4
    assert all(torch.equal(tensor, before[name]) for name, tensor in reference.state_dict().items())
    for learner in worker.learners.values():
        weights = learner.policy.state_dict()
        assert not any(
            torch.equal(weights[name], before[name]) for name in ("value_head.weight", "value_head.bias")
        )
        assert not torch.equal(
            weights["model.transformer.wte.weight"], before["model.transformer.wte.weight"]
        )
    seats = []
    worker.game.prompts = lambda seat, prompts=worker.game.prompts: (seats.append(seat), prompts(seat))[1]
    for learner in worker.learners.values():
        respond = learner.policy.respond
        learner.policy.respond = lambda *args, respond=respond: (
            seats.append(respond.__self__),
            respond(*args),
        )[1]
    worker.iterate()
    first, second = (learner.policy for learner in worker.learners.values())
    assert seats == ["pioneer_0", second, "observer_1", first]
