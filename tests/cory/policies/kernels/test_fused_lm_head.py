"""Statistics of the fused head and their gradients against autograd in float64."""

import pytest
import torch
from torch import nn

from cory.functional import logit_statistics
from cory.policies import chunked_loss
from cory.policies.kernels import fused_lm_head

K, D, V, KNOWN = 9, 8, 23, 21


@pytest.fixture(params=[0, 256], ids=["padded", "not padded"])
def factors(request, monkeypatch):
    """Five runs of columns, the last of them short; nine rows, padded to 16 or not. Two ids are no tokens."""
    monkeypatch.setattr(fused_lm_head, "RUN", 5)
    monkeypatch.setattr(fused_lm_head, "SMALL", request.param)
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(D, V, bias=False)
    linear.weight.data = torch.randn(V, D, generator=generator)
    state_KD, ref_KV = torch.randn(K, D, generator=generator), torch.randn(K, KNOWN, generator=generator)
    return linear, state_KD, torch.randint(KNOWN, (K,), generator=generator), ref_KV


def with_autograd(linear, state_KD, token_K, ref_KV, weights_3K, temperature=1.0):
    """Statistics of the first `KNOWN` logits and the gradients of their weighted sum, in float64."""
    state_KD, weight_VD = (tensor.detach().double().requires_grad_() for tensor in (state_KD, linear.weight))
    logp_KV = ((state_KD @ weight_VD.t())[:, :KNOWN] / temperature).log_softmax(-1)
    ref_logp_KV, p_KV = ref_KV.double().log_softmax(-1), logp_KV.exp()
    found = (
        logp_KV.gather(1, token_K[:, None])[:, 0],
        -(p_KV * logp_KV).sum(-1),
        (p_KV * (logp_KV - ref_logp_KV)).sum(-1),
    )
    loss = sum((weight_K * one_K).sum() for weight_K, one_K in zip(weights_3K.double(), found, strict=True))
    return found, torch.autograd.grad(loss, [state_KD, weight_VD])


def gradients(linear, state_KD, token_K, ref_KV, weights_3K, **options):
    """The same by the fused head; statistics without a weight stay out of the loss."""
    state_KD = state_KD.detach().requires_grad_()
    found = fused_lm_head.head_statistics(linear, state_KD, token_K, ref_KV, vocab_size=KNOWN, **options)
    loss = sum((w * one_K).sum() for w, one_K in zip(weights_3K, found[:3], strict=True) if w.any())
    return found, torch.autograd.grad(loss, [state_KD, linear.weight])


def weights(*used: int) -> torch.Tensor:
    """Weights of log-prob, entropy and KL; a third of the tokens has none."""
    weights_3K = torch.randn(3, K, generator=torch.Generator().manual_seed(1)) * torch.tensor(used)[:, None]
    weights_3K[:, [0, 4, 7]] = 0
    return weights_3K


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("used", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)], ids=str)
def test_statistics_and_gradients_are_autograds(factors, dtype, used, temperature):
    linear, state_KD, token_K, ref_KV = factors
    linear, state_KD, ref_KV = linear.to(dtype), state_KD.to(dtype), ref_KV.to(dtype)
    given = linear, state_KD, token_K, ref_KV, weights(*used).to(dtype)
    want, want_grads = with_autograd(*given, temperature)
    found, grads = gradients(*given, temperature=temperature)
    for got_K, want_K in zip(found, want, strict=False):
        torch.testing.assert_close(got_K.double(), want_K.detach(), atol=1e-5, rtol=1e-5)
    for got, want_grad in zip(grads, want_grads, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want_grad, atol=1e-5, rtol=1e-5)


def test_equal_heads_have_a_kl_of_exactly_0(factors):
    linear, state_KD, token_K, _ = factors
    with torch.no_grad():
        ref_KV = fused_lm_head.apply_head(linear, state_KD)
    found = fused_lm_head.head_statistics(linear, state_KD, token_K, ref_KV, vocab_size=V)
    assert found.kl_N.tolist() == [0.0] * K
    assert torch.equal(found.logprob_N, found.ref_logprob_N)
    assert torch.equal(found.logprob_N, logit_statistics.logit_statistics(ref_KV, token_K).logprob_N)


def test_under_autocast_products_are_bfloat16_and_gradients_float32(factors):
    linear, state_KD, token_K, ref_KV = factors
    rounded = nn.Linear(D, V, bias=False)
    rounded.weight.data = linear.weight.detach().bfloat16().float()
    given = token_K, ref_KV.bfloat16().float(), weights(1, 0, 0)
    want, want_grads = with_autograd(rounded, state_KD.bfloat16().float(), *given)
    with torch.autocast("cpu", torch.bfloat16):
        found, grads = gradients(linear, state_KD, token_K, ref_KV.bfloat16(), given[-1])
    torch.testing.assert_close(found.logprob_N.double(), want[0].detach(), atol=3e-2, rtol=1e-2)
    for got, want_grad in zip(grads, want_grads, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want_grad, atol=5e-2, rtol=2e-2)


def test_a_frozen_head_gets_no_gradient(factors):
    linear, state_KD, token_K, ref_KV = factors
    want = with_autograd(linear, state_KD, token_K, ref_KV, weights(1, 0, 0))[1][0]
    linear.requires_grad_(False)
    state_KD.requires_grad_()
    found = fused_lm_head.head_statistics(linear, state_KD, token_K, vocab_size=KNOWN)
    (weights(1, 0, 0)[0] * found.logprob_N).sum().backward()
    assert linear.weight.grad is None
    torch.testing.assert_close(state_KD.grad.double(), want, atol=1e-5, rtol=1e-5)


def test_it_applies_neither_to_a_head_with_a_bias_nor_to_more_than_a_matrix(factors):
    _, state_KD, *_ = factors
    for head in (nn.Linear(D, V), nn.Sequential(nn.Linear(D, V), nn.Tanh())):
        assert not fused_lm_head.applies(head)
        assert torch.equal(fused_lm_head.apply_head(head, state_KD), head(state_KD))


@pytest.mark.parametrize("rows", [1, 256, 257, 272, 559])
def test_products_have_a_padded_number_of_rows_and_logits_the_original_one(rows, monkeypatch):
    linear, seen = nn.Linear(D, V, bias=False), []
    plain = fused_lm_head.pad_rows
    monkeypatch.setattr(fused_lm_head, "pad_rows", lambda state: seen.append(plain(state)) or seen[-1])
    for learns in (False, True):
        with torch.set_grad_enabled(learns):
            got_KV = fused_lm_head.apply_head(linear, torch.randn(rows, D))
        assert got_KV.shape == (rows, V)
        assert len(seen[-1]) == (rows if rows <= 256 else {257: 272, 272: 272, 559: 560}[rows])
        assert (seen[-1][rows:] == 0).all()


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [(2560, [640] * 4), (667, [667]), (668, [336, 332]), (2547, [640] * 3 + [627]), (1, [1]), (0, [])],
)
def test_chunks_are_few_and_of_equal_size(tokens, sizes):
    """At most 667 tokens in each."""
    assert [len(range(tokens)[at]) for at in chunked_loss.chunks(tokens, 667)] == sizes
