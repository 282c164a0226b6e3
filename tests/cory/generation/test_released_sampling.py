"""`sampling.mismatch="released"`: repetition penalty and dropout while sampling, neither while scoring."""

import warnings

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from cory.generation.strategies import PenalisedDecoder, dropout_from
from cory.policies.scoring import evaluate
from tests.helpers.batches import LENGTHS, B, T, sampled, single_row_logprobs
from tests.helpers.models import GivenLogits, make_causal_lm

PENALTY = 1.1


def make_released(kind: str = "gpt2", **options):
    policy = make_causal_lm(kind, **options)
    policy.mismatch = "released"
    policy.set_reference(policy)
    return policy


def test_the_penalty_by_hand():
    """Prompt 1, then 2 is chosen. Positive logits of tokens so far are halved, negative ones doubled.

    The 3 behind the prompt is padding and does not count.
    """
    logits_1V = torch.tensor([[4.0, 4.0, -4.0, 4.0]])
    decoder = PenalisedDecoder(GivenLogits([logits_1V, logits_1V]), 2.0)
    first_1V = decoder.start(torch.tensor([[1, 3]]), torch.tensor([1]), tokens=2)
    assert first_1V.tolist() == [[4.0, 2.0, -4.0, 4.0]]
    assert decoder.step(torch.tensor([2])).tolist() == [[4.0, 2.0, -8.0, 4.0]]


def test_the_penalty_is_that_of_transformers():
    generator = torch.Generator().manual_seed(0)
    logits_TBV = torch.randn(T, B, 50, generator=generator) * 5
    prompt_BP = torch.randint(1, 50, (B, 5), generator=generator)
    token_BT = torch.randint(1, 50, (B, T), generator=generator)
    length_B = torch.tensor(LENGTHS)
    decoder = PenalisedDecoder(GivenLogits(logits_TBV), PENALTY)
    oracle = RepetitionPenaltyLogitsProcessor(PENALTY)
    for t in range(T):
        got_BV = decoder.start(prompt_BP, length_B, tokens=T) if t == 0 else decoder.step(token_BT[:, t - 1])
        for i, length in enumerate(LENGTHS):
            ids = torch.cat([prompt_BP[i, :length], token_BT[i, :t]])[None]
            torch.testing.assert_close(got_BV[i], oracle(ids, logits_TBV[t, i][None].clone())[0])


@pytest.mark.filterwarnings("ignore:sampling.mismatch")
def test_the_sampler_penalises_and_the_scorer_does_not():
    """Llama has no dropout here: the sampler's log-probs are those of the penalised logits of a single row.

    The scorer's are those of the unpenalised ones.
    """
    policy = make_released("llama")
    rows, behaviour_BT = sampled(policy)
    scored_BT = evaluate(policy, rows).logprobs_BT
    oracle = RepetitionPenaltyLogitsProcessor(PENALTY)
    for i, p in enumerate(LENGTHS):
        r = int(rows.response_length_B[i])
        torch.testing.assert_close(scored_BT[i, :r], single_row_logprobs(policy, rows, i), atol=1e-5, rtol=0)
        ids = torch.cat([rows.prompt_BP[i, :p], rows.response_BT[i, :r]])[None]
        with torch.no_grad():
            logits_LV = policy.model(input_ids=ids).logits[0]
        for t in range(r):
            penalised_V = oracle(ids[:, : p + t], logits_LV[p + t - 1][None].clone())[0]
            want = penalised_V.log_softmax(-1)[rows.response_BT[i, t]]
            torch.testing.assert_close(behaviour_BT[i, t], want, atol=1e-5, rtol=0)
    assert (scored_BT - behaviour_BT).abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore:sampling.mismatch")
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_dropout_is_on_while_sampling_and_a_function_of_the_uniforms_only(gradient_checkpointing):
    policy = make_released(gradient_checkpointing=gradient_checkpointing)
    torch.manual_seed(3)
    rows, behaviour_BT = sampled(policy)
    torch.manual_seed(4)
    before = torch.get_rng_state()
    again, again_BT = sampled(policy)
    assert torch.equal(rows.response_BT, again.response_BT)
    assert torch.equal(behaviour_BT, again_BT)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in policy.model.modules())
    scored_BT = evaluate(policy, rows).logprobs_BT
    for module in policy.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    _, without_BT = sampled(policy)
    assert (behaviour_BT[:, 0] - without_BT[:, 0]).abs().max() > 1e-2
    assert (scored_BT - evaluate(policy, rows).logprobs_BT).abs().max() == 0


def test_other_uniforms_drop_other_elements():
    model, x = torch.nn.Dropout(0.5).eval(), torch.ones(64)

    def dropped(uniform):
        with dropout_from(torch.full((2, 3), uniform), model, torch.device("cpu")):
            return model(x)

    assert torch.equal(dropped(0.25), dropped(0.25))
    assert not torch.equal(dropped(0.25), dropped(0.75))
    assert torch.equal(model(x), x)


def test_a_broken_weight_leaves_dropout_off():
    policy = make_released()
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[0] = float("nan")
    with pytest.warns(UserWarning, match="released"), pytest.raises(FloatingPointError):
        sampled(policy)
    assert not any(module.training for module in policy.model.modules())


def test_the_mismatch_warns_once_and_the_default_not_at_all():
    released, plain = make_released(), make_causal_lm("gpt2")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        sampled(plain)
        assert not caught
        for _ in range(3):
            sampled(released)
    assert len(caught) == 1
    assert "sampled with repetition penalty and dropout and scored without" in str(caught[0].message)
