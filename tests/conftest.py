"""What holds for all tests: the library of matrix products."""

import sys

import pytest


@pytest.fixture(autouse=True)
def matmul_library():
    """Give each test torch's own library for matrix products: a run sets one for its process."""
    torch = sys.modules.get("torch")
    if torch is not None:  # the game's tests do without it
        torch.backends.mkldnn.matmul.fp32_precision = "none"
