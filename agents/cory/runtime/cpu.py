"""What a process asks of its machine before it computes: threads, memory, the library of matrix products.

Measured gains are in docs/performance.md.
"""

import ctypes
import os
import platform
from pathlib import Path
from typing import Literal, get_args

import torch

Matmul = Literal["auto", "mkl", "onednn"]
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""glibc's names for `mallopt`: malloc.h."""

KERNELS = 128
"""Compiled matrix products that are remembered."""


def configure_runtime(*, threads: int = 0, matmul: Matmul = "auto") -> None:
    """Take `threads` CPU threads (0 = as many as torch finds), keep freed memory but few kernels, choose the
    library. To be called before the first product."""
    if threads:
        torch.set_num_threads(threads)
    keep_few_kernels()
    keep_memory()
    choose_matmul(matmul)


def keep_few_kernels() -> None:
    """Let torch and oneDNN remember `KERNELS` kernels each, and not 1,024, unless the environment says so.

    oneDNN compiles a kernel for every shape it multiplies, 0.3 ms and 0.6 MB each, and batches of ever other
    lengths bring new shapes in every iteration: 70 of the default run's 150.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(KERNELS))


def keep_memory() -> None:
    """Freed memory stays with the process, so that large tensors are not made of fresh pages each time.

    The kernel fills a fresh page with zeros, one fault each: more time than the arithmetic on it. Does
    nothing where the C library is not glibc.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def choose_matmul(matmul: Matmul) -> None:
    """The library of float32 products on the CPU; `auto` is oneDNN on processors MKL was not made for.

    torch takes oneDNN where it may round the factors to bfloat16. Processors without instructions for that
    still multiply in float32; where this one does round, oneDNN is refused and `auto` is MKL.
    """
    if matmul not in get_args(Matmul):
        raise ValueError(f"matmul is {matmul!r}; there are {', '.join(get_args(Matmul))}")
    setting = torch.backends.mkldnn.matmul
    setting.fp32_precision = "none"
    if matmul == "mkl" or (matmul == "auto" and not _mkl_is_slow()):
        return
    setting.fp32_precision = "bf16"
    if not is_exact():
        setting.fp32_precision = "none"
        if matmul == "onednn":
            raise ValueError(
                "matmul is 'onednn', which rounds float32 to bfloat16 on this processor; take mkl or auto, "
                "or ask for --policy.precision bfloat16"
            )


def chosen_matmul() -> str:
    """The library in use."""
    return "onednn" if torch.backends.mkldnn.matmul.fp32_precision == "bf16" else "mkl"


def is_exact() -> bool:
    """Whether products of float32 matrices keep float32's digits: 1 + 2^-12 survives a product with 1.

    Asked of the shapes that kernels are chosen by: few and many rows, transposed factors, batches.
    """
    value = 1 + 2**-12
    for rows, inner, columns in ((1, 256, 512), (64, 256, 4096), (640, 512, 256)):
        eye_KN = torch.eye(inner, columns)
        few = torch.full((rows, inner), value)
        wanted_MN = value * (torch.arange(columns) < inner).float().expand(rows, columns)
        batched_MN = torch.bmm(few.expand(3, -1, -1), eye_KN.expand(3, -1, -1))[2]
        products = (few @ eye_KN, few @ eye_KN.t().contiguous().t(), batched_MN)
        if not all(torch.equal(product_MN, wanted_MN) for product_MN in products):
            return False
    return True


def _mkl_is_slow() -> bool:
    """Whether both libraries are here and the processor is of another maker than MKL."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    told = Path("/proc/cpuinfo")
    maker = told.read_text(encoding="utf-8") if told.exists() else platform.processor()
    return "GenuineIntel" not in maker
