"""Networks and partners for other libraries, beside what policies of this package compute."""

import numpy as np
import pytest
import torch

from cory import pocket
from cory.batch import Rows
from cory.interop.language_model import next_token_states, partner
from cory.policies.causal_lm import CausalLMPolicy


@pytest.fixture(scope="module")
def policy():
    return CausalLMPolicy.load("any", pocket.ARITHMETIC_LM)


def observations(policy, *responses):
    """Rows as the token-level environments show them in the order of play, after the prompt 5 6."""
    rows = [[5, 6, *ids[:t]] for ids in responses for t in range(len(ids))]
    return torch.tensor([[*row, *[policy.pad] * (12 - len(row))] for row in rows])


def expected(policy, responses):
    rows = Rows(
        prompt_BP=torch.tensor([[5, 6]] * len(responses)),
        prompt_length_B=torch.full((len(responses),), 2),
        response_BT=torch.tensor([[*ids, *[9] * (4 - len(ids))] for ids in responses]),
        response_length_B=torch.tensor([len(ids) for ids in responses]),
    )
    return policy.hidden_states(rows)


@torch.no_grad()
def test_states_are_those_of_the_policy_and_rows_that_others_continue_take_no_pass(policy, monkeypatch):
    responses = ([31, 32, 33, 34], [31, 32], [40, 41, 42])
    ids_RL, want = observations(policy, *responses), expected(policy, responses)
    seen, trunk = [], policy.trunk
    monkeypatch.setattr(policy, "trunk", lambda **inputs: (seen.append(inputs), trunk(**inputs))[1])
    for order in (torch.arange(9), torch.tensor([8, 3, 0, 5, 1, 7, 2, 6, 4])):
        found = next_token_states(policy, ids_RL[order])
        torch.testing.assert_close(found, want[order], atol=1e-5, rtol=1e-4)
    # Two passes for nine rows: 5 6 31 32 33 and 5 6 40 41 begin with all of the others.
    assert [tuple(inputs["input_ids"].shape) for inputs in seen] == [(2, 5)] * 2


def test_states_carry_gradients_and_no_rows_have_none(policy):
    next_token_states(policy, observations(policy, [31, 32])).sum().backward()
    assert policy.model.get_input_embeddings().weight.grad[31].abs().sum() > 0
    policy.zero_grad()
    assert next_token_states(policy, torch.zeros(0, 12, dtype=torch.long)).shape == (0, 128)
    with pytest.raises(ValueError, match="a row holds the pad id 0 only"):
        next_token_states(policy, torch.zeros(1, 12, dtype=torch.long))


def test_partner_samples_from_the_policy(policy):
    """The same uniforms give the same ids as the policy's sampler; the response ends at the cap."""
    ids = partner(policy)((5, 6), 4, np.random.default_rng(0))
    want = policy.sample(
        torch.tensor([[5, 6]]),
        torch.tensor([2]),
        uniforms_BT=torch.from_numpy(np.random.default_rng(0).random((1, 4))),
        caps_B=torch.tensor([4]),
    )
    assert ids == want.response_BT[0, : int(want.response_length_B)].tolist()
    assert 1 <= len(ids) <= 4
