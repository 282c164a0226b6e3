"""CPU runtime settings: threads, allocator, BLAS, products of bfloat16.

Measured gains are in docs/scale.md.
"""

import ctypes
import os
import platform
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BACKENDS: Any = torch.backends  # its annotations lack the attributes used here

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt` (malloc.h)."""

CACHED_KERNELS = 128
"""Compiled matrix products that stay cached."""


def configure_runtime(*, threads: int = 0) -> None:
    """Set threads (0 = torch's default), allocator, caches and BLAS before the first matrix product."""
    if threads:
        torch.set_num_threads(threads)
    # oneDNN compiles a kernel for every shape, 0.6 MB each, and batches bring new shapes in every iteration.
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(CACHED_KERNELS))
    if platform.libc_ver()[0] == "glibc":  # keep freed memory: new pages are zero-filled, which takes longer
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    choose_matmul()


def choose_matmul() -> None:
    """Have oneDNN multiply float32 matrices on processors that MKL is slow on, if it is exact there.

    torch calls oneDNN only where it may round the factors to bfloat16. Processors without instructions for
    that still multiply in float32; on processors that round, it is MKL.
    """
    setting = BACKENDS.mkldnn.matmul
    setting.fp32_precision = "bf16" if _mkl_is_slow() else "none"
    if _mkl_is_slow() and not is_exact():
        setting.fp32_precision = "none"


def chosen_matmul() -> str:
    """Return the library in use."""
    return "onednn" if BACKENDS.mkldnn.matmul.fp32_precision == "bf16" else "mkl"


def is_exact() -> bool:
    """Whether products of float32 matrices keep float32 precision: 1 + 2^-12 times 1 is unchanged.

    Tests the shapes that select different kernels: few and many rows, transposed factors, batches.
    """
    value = 1 + 2**-12
    for rows, inner, columns in ((1, 256, 512), (64, 256, 4096), (640, 512, 256)):
        eye_KN = torch.eye(inner, columns)
        left_MK = torch.full((rows, inner), value)
        expected_MN = value * (torch.arange(columns) < inner).float().expand(rows, columns)
        batched_MN = torch.bmm(left_MK.expand(3, -1, -1), eye_KN.expand(3, -1, -1))[2]
        products = (left_MK @ eye_KN, left_MK @ eye_KN.t().contiguous().t(), batched_MN)
        if not all(torch.equal(product_MN, expected_MN) for product_MN in products):
            return False
    return True


@cache
def widen_bfloat16() -> "torch.library.Library | None":
    """Multiply bfloat16 matrices in float32 and round the result, where torch has no kernels for them.

    Its loops for processors that oneDNN has none for round the same sums, and take 8 to 20 times as long.
    For this process, for good; the registration, or None where nothing is changed.
    """
    if BACKENDS.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # torch says once that a kernel is replaced
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name in ("mm", "addmm", "bmm", "baddbmm"):
            product = torch.library.get_kernel(f"aten::{name}", "CPU")
            into = torch.library.get_kernel(f"aten::{name}.out", "CPU")
            library.impl(name, partial(_widened, product, product), "CPU", with_keyset=True)
            library.impl(f"{name}.out", partial(_widened, into, product), "CPU", with_keyset=True)
    return library


def _widened(usual: Any, product: Any, keys: Any, *factors: Tensor, **options: Any) -> Tensor:
    """A product by its usual kernel; of bfloat16 by `product`, that of float32, rounded."""
    if factors[-1].dtype != torch.bfloat16:
        return usual.call_boxed(keys, *factors, **options)  # type: ignore[no-any-return]
    out = options.pop("out", None)
    result = product.call_boxed(keys, *(factor.float() for factor in factors), **options)
    return result.bfloat16() if out is None else out.copy_(result)  # type: ignore[no-any-return]


def _mkl_is_slow() -> bool:
    """Whether MKL and oneDNN are both available and the processor is not Intel's."""
    if not (BACKENDS.mkl.is_available() and BACKENDS.mkldnn.is_available()):
        return False
    path = Path("/proc/cpuinfo")
    maker = path.read_text(encoding="utf-8") if path.exists() else platform.processor()
    return "GenuineIntel" not in maker
