"""CPU settings: the matmul library never rounds float32, and few kernels are cached."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cory
from cory.runtime import cpu

SOURCES = Path(cory.__file__).parents[1]


def test_float32_products_keep_their_digits():
    cpu.choose_matmul()
    left, right = torch.randn(64, 256), torch.randn(256, 4096)
    exact = left.double() @ right.double()
    # 256 products of size 1: float32 is off by about 1e-5, bfloat16 by about 0.1
    assert ((left @ right).double() - exact).abs().max() < 1e-3
    assert cpu.is_exact()


def test_a_library_that_rounds_is_not_chosen(monkeypatch):
    monkeypatch.setattr(cpu, "is_exact", lambda: False)
    monkeypatch.setattr(cpu, "_mkl_is_slow", lambda: True)
    cpu.choose_matmul()
    assert cpu.chosen_matmul() == "mkl"


def test_rounding_to_bfloat16_would_be_noticed(monkeypatch):
    rounded = torch.Tensor.bfloat16
    plain = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: plain(rounded(a).float(), rounded(b).float())
    )
    assert not cpu.is_exact()


@pytest.fixture
def widened(monkeypatch):
    """Products of bfloat16 made in float32, on any processor; types of the factors of each."""
    types = []
    product = cpu._widened

    def recorded(usual, wide, keys, *factors, **options):
        types.append(factors[-1].dtype)
        return product(usual, wide, keys, *factors, **options)

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(cpu, "_widened", recorded)
    library = cpu.widen_bfloat16.__wrapped__()
    yield types
    library._destroy()


def test_products_of_bfloat16_are_float32_sums_rounded_once(widened):
    """1 + 256 / 512 is 1.5; added one by one in bfloat16, which has 8 bits, it would stay 1."""
    left = torch.full((3, 257), 2.0**-9).index_fill_(1, torch.tensor([0]), 1.0).bfloat16()
    right, bias = torch.ones(257, 5).bfloat16(), torch.full((5,), 4.0).bfloat16()
    batched = left.expand(2, 3, 257), right.expand(2, 257, 5)
    out = torch.empty(3, 5, dtype=torch.bfloat16)
    expected = {
        1.5: (left @ right, torch.mm(left, right, out=out), out, torch.bmm(*batched)),
        5.5: (
            torch.nn.functional.linear(left, right.t(), bias),
            torch.baddbmm(bias.expand(2, 3, 5), *batched),
        ),
        5.0: (torch.addmm(bias, left, right, beta=0.5, alpha=2),),
    }
    for value, products in expected.items():
        for product in products:
            assert product.dtype == torch.bfloat16
            assert (product == value).all()
    assert widened == [torch.bfloat16] * 6


def test_gradients_of_bfloat16_products_are_widened_and_float32_is_left_alone(widened):
    left, right = torch.randn(4, 8), torch.randn(8, 3)
    exact = left.double() @ right.double()
    assert ((left @ right).double() - exact).abs().max() < 1e-5
    factor = left.bfloat16().requires_grad_()
    (factor @ right.bfloat16()).sum().backward()
    torch.testing.assert_close(factor.grad.float(), right.sum(1).expand(4, 8), rtol=2**-7, atol=2**-6)
    assert widened == [torch.float64, torch.float32, torch.bfloat16, torch.bfloat16]


FOUR_HUNDRED_SHAPES = """
from pathlib import Path
import torch
from cory.runtime import cpu

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

cpu.configure_runtime(threads=1)
left, right, out = torch.randn(1000, 256), torch.randn(256, 512), torch.empty(1000, 512)
torch.mm(left, right, out=out)
before = resident()
for rows in range(300, 700):
    torch.mm(left[:rows], right, out=out[:rows])
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_products_of_ever_new_shapes_do_not_take_ever_more_memory(monkeypatch):
    """Cached for every shape, oneDNN's kernels of these take 240 MB; those of 128 shapes take 100."""
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    process = subprocess.run(
        [sys.executable, "-c", FOUR_HUNDRED_SHAPES], cwd=SOURCES, capture_output=True, text=True, check=True
    )
    assert int(process.stdout) < 150 * 2**20
