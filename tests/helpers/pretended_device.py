"""A pretended accelerator: tensors on `pretended:0` refuse to meet tensors of the CPU, as those of a GPU do.

The CPU computes them. Waits for the device, copies to and from it, and launches are counted. Torch's slot for
devices written in Python (PrivateUse1), a tensor subclass that wraps a CPU tensor, and one dispatch mode.
It shows where tensors lie and how often the host waits; not a GPU's kernels, memory or speed.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretended"
FREE = 1 << 32
"""Bytes of memory that the device says are free."""
ROOT = f"{Path(__file__).parents[2]}/"
PROJECT = (f"{ROOT}agents/", f"{ROOT}cory_env/")
READS = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2",
    "bincount", "repeat_interleave", "argwhere",
}  # fmt: skip
"""Operations whose result the host must know: it waits for the device."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
TRANSFERS = {"copy_", "_to_copy", "_copy_from"}
TO_BFLOAT16 = (
    "mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "addbmm", "mv", "addmv", "conv1d",
    "scaled_dot_product_attention",
)  # fmt: skip
TO_FLOAT32 = (
    "layer_norm", "softmax.int", "log_softmax.int", "exp", "log", "pow.Tensor_Scalar", "rsqrt", "cumsum",
    "sum", "sum.dim_IntList", "norm.Scalar", "nll_loss", "prod", "log1p", "expm1", "reciprocal",
)  # fmt: skip
"""What autocast casts on CUDA, as far as language models use it."""


@dataclass
class Counts:
    """What the host asked of the device, by operation and line of the project."""

    waits: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    """Between host and device, in either direction."""
    launches: int = 0
    synchronised: int = 0
    """Waits for everything at once, which time a phase."""


class _Module(_DummyBackendModule):
    """What `torch.pretended` offers."""

    def is_available(self) -> bool:
        return _Hook.active

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def synchronize(self, device: object = None) -> None:
        _Mode.counts.synchronised += 1

    def is_bf16_supported(self) -> bool:
        return True

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return FREE, 2 * FREE

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)


class _Hook(_DummyPrivateUse1Hook):
    """Says that the device is there while `pretended_device` is active."""

    active = False

    def is_available(self) -> bool:
        return _Hook.active


class PretendedTensor(torch.Tensor):
    """A tensor on `pretended:0`; `inner` holds its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "PretendedTensor":
        if inner.dtype == torch.float64:
            raise TypeError(f"{NAME}:0 has no float64")  # as MPS
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, layout=inner.layout, device=torch.device(NAME, 0),
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self, *args: object, **kwargs: object) -> str:
        return f"PretendedTensor({self.inner!r})"

    def tolist(self) -> list:
        _Mode.counts.waits[f"tolist @ {_line()}"] += 1
        return self.inner.tolist()

    def numpy(self, **kwargs: object) -> None:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy; use Tensor.cpu() first")

    __array__ = numpy

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Sees operations that make a first tensor there: `torch.zeros(3, device="pretended")`."""

    counts = Counts()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


@contextmanager
def pretended_device() -> Iterator[Counts]:
    """Within the block there is an accelerator `pretended:0`; what is asked of it is counted."""
    _register()
    lifted = torch._C._only_lift_cpu_tensors()
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    outer, was_active = _Mode.counts, _Hook.active
    _Mode.counts, _Hook.active = Counts(), True
    torch._C._set_only_lift_cpu_tensors(True)
    torch.__future__.set_swap_module_params_on_conversion(True)  # else `to` unties wrapped weights
    try:
        with _Mode():
            yield _Mode.counts
    finally:
        _Mode.counts, _Hook.active = outer, was_active
        torch._C._set_only_lift_cpu_tensors(lifted)
        torch.__future__.set_swap_module_params_on_conversion(swapped)


@cache
def _register() -> list[torch.library.Library]:
    """Register the device and its autocast, once a process; the libraries must outlive the process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module(), hook=_Hook())
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    for names, dtype in ((TO_BFLOAT16, torch.bfloat16), (TO_FLOAT32, torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(name, _autocast(op, dtype), "AutocastPrivateUse1")
    return [everything, aten]


def _autocast(op, dtype: torch.dtype):
    """`op` on arguments cast to `dtype`."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(value):
        there = isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type == NAME
        return value.to(dtype) if there and value.dtype not in (dtype, torch.float64) else value

    def call(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(key):
            return op(*tree_map(cast, args), **tree_map(cast, kwargs))

    return call


def _run(func, args, kwargs):
    """Compute one operation on the CPU's tensors; RuntimeError where tensors of two devices meet."""
    name = func.overloadpacket.__name__
    there, strangers = [], []
    inner_args = [_unwrapped(value, there, strangers) for value in args]
    inner_kwargs = {key: _unwrapped(value, there, strangers) for key, value in kwargs.items()}
    wanted = kwargs.get("device")
    goes_there = wanted is not None and torch.device(wanted).type == NAME
    if not there and not goes_there:
        return func(*args, **kwargs)
    leaves = wanted is not None and not goes_there
    if there and strangers and name not in TRANSFERS:
        _check_devices(name, func, args, strangers)
    _count(name, args, leaves=leaves, arrives=goes_there and not there)
    if inner_kwargs.get("pin_memory"):
        inner_kwargs["pin_memory"] = False
    out = func(*inner_args, **inner_kwargs)
    if leaves or name == "_local_scalar_dense" or (name == "copy_" and not _is_there(args[0])):
        return out
    return _wrapped(out, {id(value.inner): value for value in there})


def _check_devices(name: str, func, args, strangers: list[torch.Tensor]) -> None:
    """Raise RuntimeError as CUDA does; indices, and numbers without dimensions, may come from the CPU."""
    if name in INDEXING and _is_there(args[0]):
        strangers = [value for value in strangers if all(value is not index for index in args[1])]
    if shapes := [tuple(value.shape) for value in strangers if value.ndim]:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and "
            f"cpu! ({func}: {shapes})"
        )


def _count(name: str, args, *, leaves: bool, arrives: bool) -> None:
    counts = _Mode.counts
    counts.launches += 1
    if name in READS:
        counts.waits[f"{name} @ {_line()}"] += 1
    if name in INDEXING:
        indices = [index for index in args[1] if isinstance(index, torch.Tensor)]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            counts.waits[f"{name} by a mask @ {_line()}"] += 1
        if not all(_is_there(index) for index in indices):
            counts.copies[f"index to the device @ {_line()}"] += 1
    if name == "copy_":
        leaves, arrives = not _is_there(args[0]), not _is_there(args[1])
    if name in ("_to_copy", "copy_") and leaves:
        counts.waits[f"copy to the host @ {_line()}"] += 1
    if name in ("_to_copy", "copy_") and (leaves or arrives):
        counts.copies[f"to the {'host' if leaves else 'device'} @ {_line()}"] += 1


def _is_there(value: object) -> bool:
    return isinstance(value, PretendedTensor)


def _unwrapped(value, there: list[PretendedTensor], strangers: list[torch.Tensor]):
    """`value` for the CPU; the tensors in it are added to `there` and `strangers`."""
    if isinstance(value, PretendedTensor):
        there.append(value)
        return value.inner
    if isinstance(value, torch.Tensor):
        strangers.append(value)
    elif isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    elif isinstance(value, list | tuple):
        return [_unwrapped(one, there, strangers) for one in value]
    return value


def _wrapped(out, own: dict[int, PretendedTensor]):
    """The result on the device; a tensor that was changed in place is the one it was."""
    if isinstance(out, torch.Tensor):
        return own[id(out)] if id(out) in own else PretendedTensor(out)
    return type(out)(_wrapped(one, own) for one in out) if isinstance(out, list | tuple) else out


def _line() -> str:
    """The innermost line of the project that is being executed."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PROJECT):
            return f"{path.removeprefix(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
