"""The head's gradients, run by run, beside those autograd takes of the same product at once."""

import pytest
import torch
from torch import nn

from agents.policies import chunks, head

K, D, V = 5, 8, 23


@pytest.fixture(params=[0, 256], ids=["rounded", "as it is"])
def factors(request, monkeypatch):
    """Five runs, the last of them short; five rows, multiplied as 16 or as 5."""
    monkeypatch.setattr(head, "RUN", 5)
    monkeypatch.setattr(head, "SMOOTH", request.param)
    torch.manual_seed(0)
    return nn.Linear(D, V, bias=False), torch.randn(K, D, requires_grad=True), torch.randn(K, V)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_and_gradients_are_autograds(factors, dtype):
    linear, state_KD, grad_KV = factors
    linear, grad_KV = linear.to(dtype), grad_KV.to(dtype)
    state_KD = state_KD.detach().to(dtype).requires_grad_()
    want_KV, got_KV = linear(state_KD), head.read(linear, state_KD)
    torch.testing.assert_close(got_KV, want_KV)
    sources = [state_KD, linear.weight]
    for want, got in zip(
        torch.autograd.grad(want_KV, sources, grad_KV),
        torch.autograd.grad(got_KV, sources, grad_KV),
        strict=True,
    ):
        assert got.dtype == dtype
        torch.testing.assert_close(got, want)


def test_under_autocast_products_are_bfloat16_and_gradients_float32(factors):
    linear, state_KD, grad_KV = factors
    with torch.autocast("cpu", torch.bfloat16):
        want_KV, got_KV = linear(state_KD), head.read(linear, state_KD)
    assert got_KV.dtype == torch.bfloat16
    torch.testing.assert_close(got_KV, want_KV)
    sources, grad_KV = [state_KD, linear.weight], grad_KV.bfloat16()
    exact = (
        grad_KV.float() @ linear.weight.bfloat16().float(),
        grad_KV.float().t() @ state_KD.bfloat16().float(),
    )
    for want, got in zip(exact, torch.autograd.grad(got_KV, sources, grad_KV), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, atol=3e-2, rtol=1e-2)


def test_its_gradients_can_be_differentiated_again(factors):
    """As natural gradients ask of it."""
    linear, state_KD, _ = factors
    linear, state_KD = linear.double(), state_KD.detach().double().requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda s, w: head._Head.apply(s, w).softmax(-1), (state_KD, linear.weight), atol=1e-4
    )


def test_a_frozen_head_gets_no_gradient(factors):
    linear, state_KD, grad_KV = factors
    linear.requires_grad_(False)
    head.read(linear, state_KD).backward(grad_KV)
    assert linear.weight.grad is None
    torch.testing.assert_close(state_KD.grad, grad_KV @ linear.weight)


def test_a_head_with_a_bias_and_one_that_is_more_than_a_matrix_are_called(factors):
    _, state_KD, _ = factors
    for whole in (nn.Linear(D, V), nn.Sequential(nn.Linear(D, V), nn.Tanh())):
        assert torch.equal(head.read(whole, state_KD), whole(state_KD))


@pytest.mark.parametrize("rows", [1, 256, 257, 272, 559])
def test_products_have_a_round_number_of_rows_and_logits_have_those_they_had(rows, monkeypatch):
    linear, seen = nn.Linear(D, V, bias=False), []
    monkeypatch.setattr(
        head, "rounded", lambda state, plain=head.rounded: seen.append(plain(state)) or seen[-1]
    )
    for learns in (False, True):
        with torch.set_grad_enabled(learns):
            got_KV = head.read(linear, torch.randn(rows, D))
        assert got_KV.shape == (rows, V)
        assert len(seen[-1]) == (rows if rows <= 256 else {257: 272, 272: 272, 559: 560}[rows])
        assert (seen[-1][rows:] == 0).all()


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [(2560, [640] * 4), (667, [667]), (668, [336, 332]), (2547, [640] * 3 + [627]), (1, [1]), (0, [])],
)
def test_chunks_are_few_and_alike(tokens, sizes):
    """At most 667 tokens of 50,257 logits each are 33.5 million."""
    assert [len(range(tokens)[at]) for at in chunks.chunks(tokens, 50_257)] == sizes
