"""`cory doctor`: machine, devices, versions and extras, and what is missing for what."""

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from cory import __version__
from cory.config.command_line import parse
from cory.runtime.terminal import say

EXTRAS = {
    "math": "the judge math-verify:COLUMN",
    "quant": "--learner.optimizer adam8bit, --lora.four-bit yes",
    "gguf": "GGUF files as --policy.model",
    "ray": "cory study --engine ray",
    **{name: f"--log-to {name}" for name in ("wandb", "trackio", "mlflow")},
    "interop": "the game in other libraries",
}
"""What each extra is for."""

MISSING = "MISSING"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Nothing to choose."""


def command(argv: Sequence[str]) -> None:
    """`cory doctor`: print the facts that a report of a problem needs."""
    parse(Options, argv, about="Show machine, devices, versions and extras.", command="cory doctor")
    for title, lines in {
        "machine": machine(),
        "devices": devices(),
        "versions": versions(),
        "extras": extras(),
    }.items():
        say("\n".join([title, *(f"  {line}" for line in lines)]) + "\n")


def machine() -> Iterator[str]:
    """System, processor, memory and disk space."""
    import psutil

    from cory.runtime.provenance import processor

    memory, disk = psutil.virtual_memory(), shutil.disk_usage(".").free >> 20
    yield f"{platform.platform()}, {processor() or 'unknown processor'}, {os.cpu_count()} threads"
    yield f"memory: {memory.available >> 20:,} of {memory.total >> 20:,} MiB free; disk {disk:,} MiB"


def devices() -> Iterator[str]:
    """What policies can train on, and how."""
    import torch

    from cory.policies.compiled_blocks import missing
    from cory.runtime.device import computes_bfloat16, default_device, device_name
    from cory.runtime.memory import free_bytes

    for index in range(-1, torch.accelerator.device_count()):
        device = torch.device("cpu") if index < 0 else torch.device(default_device(), index)
        name = f"{torch.get_num_threads()} threads" if index < 0 else device_name(device)
        bfloat16 = "bfloat16" if computes_bfloat16(device) else "no bfloat16"
        compiles = (
            "compiles blocks" if (lacks := missing(device)) is None else f"policy.compile lacks {lacks}"
        )
        yield f"{device}: {name}, {free_bytes(device) >> 20:,} MiB free, {bfloat16}, {compiles}"
    if not torch.accelerator.device_count():
        yield f"no GPU (torch with CUDA {torch.version.cuda}); presets other than pocket ones need one"


def versions() -> Iterator[str]:
    """Versions of this project and of what it requires; a requirement that is not met is named."""
    yield f"cory {__version__}, Python {platform.python_version()}"
    for one in _requirements(""):
        wrong = "" if _is_met(one) else f", which is not {one.specifier}: pip install -U cory"
        yield f"{one.name} {_version(one)}{wrong}"


def extras() -> Iterator[str]:
    """Every extra: installed, or which of its packages are missing, and what it is for."""
    for name, use in EXTRAS.items():
        missing = [one.name for one in _requirements(name) if not _is_met(one)]
        state = f"missing {', '.join(missing)}: pip install 'cory[{name}]'" if missing else "installed"
        yield f"{name}: {state} (for {use})"


def _requirements(extra: str) -> list[Requirement]:
    """What the project requires, or what only an extra does."""

    def holds(one: Requirement, extra: str) -> bool:
        return one.marker is None or one.marker.evaluate({"extra": extra})

    every = map(Requirement, requires("cory") or () if _version(Requirement("cory")) != MISSING else ())
    return [one for one in every if holds(one, extra) and not (extra and holds(one, ""))]


def _version(requirement: Requirement) -> str:
    try:
        return version(requirement.name)
    except PackageNotFoundError:
        return MISSING


def _is_met(requirement: Requirement) -> bool:
    found = _version(requirement)
    return found != MISSING and requirement.specifier.contains(found, prereleases=True)
