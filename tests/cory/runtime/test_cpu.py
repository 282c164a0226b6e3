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
