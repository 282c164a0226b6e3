"""Libraries are chosen by what they compute, never to the loss of digits."""

import pytest
import torch

from agents import machine


@pytest.mark.parametrize("matmul", ["auto", "mkl"])
def test_float32_products_keep_their_digits_whatever_is_chosen(matmul):
    machine.choose_matmul(matmul)
    left, right = torch.randn(64, 256), torch.randn(256, 4096)
    exact = left.double() @ right.double()
    # 256 products of size 1: float32 is off by about 1e-5, bfloat16 by about 0.1
    assert ((left @ right).double() - exact).abs().max() < 1e-3
    assert machine.is_exact()


def test_a_library_that_rounds_is_refused_by_name_and_passed_over_by_auto(monkeypatch):
    monkeypatch.setattr(machine, "is_exact", lambda: False)
    monkeypatch.setattr(machine, "_mkl_is_slow", lambda: True)
    with pytest.raises(ValueError, match="rounds float32 to bfloat16 on this processor; take mkl"):
        machine.choose_matmul("onednn")
    machine.choose_matmul("auto")
    assert machine.chosen_matmul() == "mkl"


def test_rounding_to_bfloat16_would_be_noticed(monkeypatch):
    rounded = torch.Tensor.bfloat16
    plain = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: plain(rounded(a).float(), rounded(b).float())
    )
    assert not machine.is_exact()


def test_an_unknown_library_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="matmul is 'blas'; there are auto, mkl, onednn"):
        machine.choose_matmul("blas")
