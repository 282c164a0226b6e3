"""Accelerators: which there is, its memory, its number formats, and the library of those with few bits.

The only file that names a type of device.
"""

import logging
from importlib import import_module
from typing import Any

import psutil
import torch


def default_device() -> str:
    """The accelerator of this machine by its type, else `cpu`."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if device is None else device.type


def device_name(device: torch.device | None = None) -> str | None:
    """The name of an accelerator, by default the current one, or its type; None for a CPU."""
    device = device or torch.device(default_device())
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    return str(module.get_device_name(device)) if hasattr(module, "get_device_name") else device.type


def computes_bfloat16(device: torch.device) -> bool | None:
    """Whether an accelerator computes matrix products in bfloat16; None where torch does not say."""
    module: Any = getattr(torch, device.type, None)
    if device.type == "cpu" or not hasattr(module, "is_bf16_supported"):
        return None
    supported = module.is_bf16_supported
    return bool(supported(including_emulation=False) if device.type == "cuda" else supported())


def empty_cache(device: torch.device) -> None:
    """Give back the memory that an accelerator's allocator holds in reserve."""
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


def free_bytes(device: torch.device) -> int:
    """Free bytes of a device; of one that shares the machine's memory (CPU, MPS), those of the machine."""
    if device.type in ("cpu", "mps"):
        return int(psutil.virtual_memory().available)
    free, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free)


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has done all it was asked to do, so that it can be timed; a CPU has."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def import_bitsandbytes(setting: str) -> Any:
    """Import bitsandbytes without its advice; ImportError names the extra that `setting` needs."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import_module("bitsandbytes.optim")
        return import_module("bitsandbytes")
    except ImportError as error:
        raise ImportError(f"{setting} needs bitsandbytes; pip install 'cory[quant]'") from error
