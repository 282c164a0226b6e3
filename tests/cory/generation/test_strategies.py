"""Sampling strategies of evaluations: truncation as in transformers, greedy."""

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from cory.generation.sampling import inverse_cdf
from cory.generation.strategies import GreedyDecoder, TruncatedDecoder, with_strategy
from tests.helpers.batches import LENGTHS, B, T
from tests.helpers.models import GivenLogits

V = 50


def start(decoder):
    return decoder.start(torch.tensor([[1]]), torch.tensor([1]), tokens=T)


def test_truncation_by_hand():
    """Probabilities 0.1, 0.2, 0.3, 0.4. Of the 3 largest (now 0.22, 0.33, 0.44) two reach 0.7."""
    logits_1V = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    p_V = start(TruncatedDecoder(GivenLogits([logits_1V]), top_k=3, top_p=0.7)).softmax(-1)[0]
    assert p_V.tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_truncation_keeps_the_likeliest_token_and_all_of_it():
    logits_1V = torch.tensor([[0.1, 0.8, 0.1]]).log()
    assert start(TruncatedDecoder(GivenLogits([logits_1V]), top_k=10, top_p=0.7)).softmax(-1)[0, 1] == 1


@pytest.mark.parametrize(("top_k", "top_p"), [(10, 0.7), (1, 1.0), (V, 0.3), (99, 0.95)])
def test_truncation_is_that_of_transformers(top_k, top_p):
    logits_TBV = torch.randn(T, B, V, generator=torch.Generator().manual_seed(0)) * 3
    logits_TBV[0, 0, :12] = 9.0  # more equal ones than top_k: all stay
    decoder = TruncatedDecoder(GivenLogits(logits_TBV), top_k=top_k, top_p=top_p)
    for t in range(T):
        got_BV = start(decoder) if t == 0 else decoder.step(torch.zeros(B, dtype=torch.long))
        want_BV = TopPLogitsWarper(top_p)(None, TopKLogitsWarper(top_k)(None, logits_TBV[t].clone()))
        assert torch.equal(got_BV.softmax(-1), want_BV.softmax(-1))
        assert torch.isfinite(got_BV).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_papers_strategy_is_penalty_then_top_k_then_top_p(dtype):
    generator = torch.Generator().manual_seed(0)
    logits_TBV = (torch.randn(T, B, V, generator=generator) * 3).to(dtype)
    prompt_BP = torch.randint(1, V, (B, 5), generator=generator)
    token_BT = torch.randint(1, V, (B, T), generator=generator)
    decoder = with_strategy(GivenLogits(logits_TBV), "paper")
    for t in range(T):
        if t == 0:
            got_BV = decoder.start(prompt_BP, torch.tensor(LENGTHS), tokens=T)
        else:
            got_BV = decoder.step(token_BT[:, t - 1])
        for i, length in enumerate(LENGTHS):
            ids = torch.cat([prompt_BP[i, :length], token_BT[i, :t]])[None]
            want_1V = RepetitionPenaltyLogitsProcessor(1.1)(ids, logits_TBV[t, i][None].float())
            want_1V = TopPLogitsWarper(0.7)(ids, TopKLogitsWarper(10)(ids, want_1V))
            torch.testing.assert_close(got_BV[i].softmax(-1), want_1V[0].softmax(-1))


def test_greedy_takes_the_first_of_the_likeliest_for_every_uniform():
    logits_BV = torch.tensor([[0.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    greedy_BV = start(GreedyDecoder(GivenLogits([logits_BV])))
    for uniform in (0.0, 0.5, 0.999):
        assert inverse_cdf(greedy_BV.clone(), torch.full((2,), uniform)).token_B.tolist() == [1, 0]


@pytest.mark.parametrize("strategy", ["paper", "greedy"])
def test_broken_weights_show_through(strategy):
    logits_1V = torch.tensor([[0.0, float("nan"), 2.0]])
    assert start(with_strategy(GivenLogits([logits_1V]), strategy)).isnan().any()


def test_the_own_strategy_is_the_decoder_itself():
    decoder = GivenLogits([])
    assert with_strategy(decoder, "own") is decoder


def test_a_draw_of_exactly_0_is_no_token_of_next_to_no_probability():
    """A draw is a multiple of 2**-24; 0 stands for all below the next."""
    logits_BV = torch.tensor([[-92.0, 0.0, 0.0]])
    assert inverse_cdf(logits_BV, torch.zeros(1)).token_B.tolist() == [1]
