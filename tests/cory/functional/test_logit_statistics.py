"""Log-probs, entropy and KL in blocks against the formulas in float64 with autograd."""

import pytest
import torch

from cory.functional import logit_statistics
from cory.generation.sampling import RUN, first_beyond, inverse_cdf, run_sums

N, V = 7, 11


def inputs(dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    z_NV = 3 * torch.randn(N, V, generator=generator)
    ref_NV = z_NV + torch.randn(N, V, generator=generator)
    return z_NV.to(dtype), torch.randint(V, (N,), generator=generator), ref_NV.to(dtype)


def with_autograd(z_NV, token_N, ref_NV, weights_3N):
    """The three results and the gradient of their weighted sum, in float64."""
    z_NV = z_NV.double().requires_grad_()
    logp_NV, ref_logp_NV = z_NV.log_softmax(-1), ref_NV.double().log_softmax(-1)
    p_NV = logp_NV.exp()
    found = (
        logp_NV.gather(1, token_N[:, None])[:, 0],
        -(p_NV * logp_NV).sum(-1),
        (p_NV * (logp_NV - ref_logp_NV)).sum(-1),
    )
    loss = sum((weight_N * one_N).sum() for weight_N, one_N in zip(weights_3N.double(), found, strict=True))
    return found, torch.autograd.grad(loss, z_NV)[0], ref_logp_NV.gather(1, token_N[:, None])[:, 0]


STATISTICS = {
    "one row": (logit_statistics.logit_statistics, 1),
    "three rows": (logit_statistics.logit_statistics, 3 * V),
    "all rows": (logit_statistics.logit_statistics, 1 << 20),
    "plain": (logit_statistics.by_autograd, 1),
}


@pytest.mark.parametrize("kind", STATISTICS)
@pytest.mark.parametrize("used", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)], ids=str)
def test_statistics_and_gradients_are_those_of_autograd_in_float64(monkeypatch, kind, used):
    statistics, block = STATISTICS[kind]
    monkeypatch.setattr(logit_statistics, "BLOCK", block)
    z_NV, token_N, ref_NV = inputs()
    weights_3N = torch.randn(3, N, generator=torch.Generator().manual_seed(1)) * torch.tensor(used)[:, None]
    want, want_grad_NV, want_ref_N = with_autograd(z_NV, token_N, ref_NV, weights_3N)
    z_NV.requires_grad_()
    found = statistics(z_NV, token_N, ref_NV)
    for got_N, want_N in zip(found, (*want, want_ref_N), strict=True):
        torch.testing.assert_close(got_N.double(), want_N.detach(), atol=1e-5, rtol=1e-5)
    loss = sum(w * one_N for w, one_N in zip(weights_3N, found[:3], strict=True) if w.any())
    grad_NV = torch.autograd.grad(loss.sum(), z_NV)[0]
    torch.testing.assert_close(grad_NV.double(), want_grad_NV, atol=1e-5, rtol=1e-5)


def test_equal_logits_have_a_kl_of_exactly_0():
    z_NV, token_N, _ = inputs()
    found = logit_statistics.logit_statistics(z_NV, token_N, z_NV.clone())
    assert found.kl_N.tolist() == [0.0] * N
    assert torch.equal(found.logprob_N, found.ref_logprob_N)


def test_bfloat16_logits_are_computed_in_float32_and_get_a_bfloat16_gradient():
    z_NV, token_N, ref_NV = inputs(torch.bfloat16)
    want, want_grad_NV, _ = with_autograd(
        z_NV, token_N, ref_NV, torch.tensor([1.0, 0, 0])[:, None].expand(3, N)
    )
    z_NV.requires_grad_()
    found = logit_statistics.logit_statistics(z_NV, token_N, ref_NV)
    torch.testing.assert_close(found.logprob_N.double(), want[0].detach(), atol=1e-5, rtol=1e-5)
    grad_NV = torch.autograd.grad(found.logprob_N.sum(), z_NV)[0]
    assert grad_NV.dtype == torch.bfloat16
    torch.testing.assert_close(grad_NV.double(), want_grad_NV, atol=4e-3, rtol=8e-3)  # 8 bits, rounded twice


def test_the_kl_gradient_of_bfloat16_logits_is_that_of_their_own_distribution():
    """It is a small difference: at the reference itself it is 0, which rounded probabilities do not give."""
    z_NV, token_N, _ = inputs(torch.bfloat16)
    z_NV.requires_grad_()
    found = logit_statistics.logit_statistics(z_NV, token_N, z_NV.detach().clone())
    assert torch.autograd.grad(found.kl_N.sum(), z_NV)[0].abs().max() < 1e-6


def test_a_gradient_overwrites_its_logits_and_without_one_they_stay():
    z_NV, token_N, ref_NV = inputs()
    made_NV = 1.0 * z_NV.requires_grad_()
    found = logit_statistics.logit_statistics(made_NV, token_N, ref_NV)
    grad_NV = torch.autograd.grad(found.logprob_N.sum(), made_NV)[0]
    assert grad_NV.data_ptr() == made_NV.data_ptr()
    found = logit_statistics.logit_statistics(made_NV := inputs()[0], token_N, ref_NV)
    assert torch.equal(made_NV, inputs()[0])


def test_logits_that_another_operator_still_needs_are_not_overwritten_silently():
    z_NV, token_N, ref_NV = inputs()
    made_NV = z_NV.requires_grad_().exp()  # whose gradient is its result
    found = logit_statistics.logit_statistics(made_NV, token_N, ref_NV)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.logprob_N.sum().backward()


@pytest.mark.parametrize("V", [3, RUN, RUN + 1, 5 * RUN + 17])
def test_the_token_drawn_is_the_first_beyond_and_never_one_of_probability_0(V):
    generator = torch.Generator().manual_seed(V)
    p_NV = torch.rand(200, V, generator=generator) * (torch.rand(200, V, generator=generator) < 0.3)
    p_NV[:, V // 2] += 0.1
    p_NV = (p_NV / p_NV.sum(1, keepdim=True)).double()
    share_N = torch.rand(200, generator=generator).double()
    share_N[:2] = torch.tensor([0.0, 1 - 2**-24])
    beyond_NV = p_NV.cumsum(1) > share_N[:, None] * p_NV.sum(1, keepdim=True)
    token_N = first_beyond(p_NV, run_sums(p_NV), share_N[:, None])[:, 0]
    assert torch.equal(token_N, beyond_NV.int().argmax(1))
    single_N = first_beyond(p_NV.float(), run_sums(p_NV.float()), share_N[:, None])[:, 0]
    assert bool((p_NV.gather(1, single_N[:, None]) > 0).all())
    assert (single_N != token_N).sum() <= 1  # rounding


def test_a_token_drawn_in_blocks_is_the_one_drawn_from_all_rows(monkeypatch):
    z_NV, uniform_N = inputs()[0], torch.linspace(0, 0.99, N)
    whole = inverse_cdf(z_NV.clone(), uniform_N)
    monkeypatch.setattr(logit_statistics, "BLOCK", 2 * V)
    assert all(torch.equal(a, b) for a, b in zip(whole, inverse_cdf(z_NV.clone(), uniform_N), strict=True))
    want_N = z_NV.log_softmax(-1).gather(1, whole.token_B[:, None])[:, 0]
    torch.testing.assert_close(whole.logprob_B, want_N)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_with_a_logit_that_is_not_finite_is_named(bad):
    z_NV = inputs()[0]
    z_NV[4, 2] = bad
    assert inverse_cdf(z_NV, torch.full((N,), 0.5)).finite_B.tolist() == [row != 4 for row in range(N)]
