"""Deterministic operations, for the whole process.

Shapes: N rows, X columns.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def configure_arithmetic(*, deterministic: bool = False) -> None:
    """Choose deterministic operations or not for this process.

    With `deterministic`, operations that sum in an order of their own are replaced or raise RuntimeError, and
    cuBLAS gets the workspace that fixes its order. It reads that from the environment when it is first used,
    so call this before. Uninitialised memory is not filled: no result depends on it.
    """
    import torch

    if deterministic:
        os.environ.setdefault(CUBLAS_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    filling: Any = torch.utils.deterministic
    filling.fill_uninitialized_memory = not deterministic  # torch fills it by default


def running_sums(tensor_NX: Tensor) -> Tensor:
    """`cumsum` of each row.

    In deterministic mode CUDA refuses it, though it sums rows in a fixed order: all but a single row, which
    is scanned in parallel (`scan_dim` of ATen/native/cuda/ScanUtils.cuh). A single row is summed twice there.
    """
    import torch

    if not torch.are_deterministic_algorithms_enabled() or tensor_NX.device.type == "cpu":
        return tensor_NX.cumsum(-1)
    rows = len(tensor_NX)
    torch.use_deterministic_algorithms(False)
    try:
        return (tensor_NX.repeat(2, 1) if rows == 1 else tensor_NX).cumsum(-1)[:rows]
    finally:
        torch.use_deterministic_algorithms(True)
