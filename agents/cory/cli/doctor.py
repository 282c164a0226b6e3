"""`cory doctor`: machine, devices, versions and extras, and what is missing for what."""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from cory import __version__
from cory.config.command_line import parse
from cory.runtime import cpu
from cory.runtime.terminal import say

EXTRAS = {
    "math": "the judge math-verify:COLUMN",
    "quant": "--learner.optimizer adam8bit, --lora.four-bit yes",
    "ray": "cory study --engine ray",
    "wandb": "--log-to wandb",
    "trackio": "--log-to trackio",
    "mlflow": "--log-to mlflow",
    "interop": "the game in other libraries",
    "docs": "building the documentation",
    "test": "make test",
    "dev": "make lint",
}
"""What each extra is for."""

GIB = 1 << 30


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
        say(title)
        say("\n".join(f"  {line}" for line in lines) + "\n")


def machine() -> list[str]:
    """System, processor, memory and free disk space."""
    import psutil
    import torch

    from cory.runtime.memory import free_bytes
    from cory.runtime.provenance import processor

    memory, folder = psutil.virtual_memory(), Path.cwd()
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    cores = f"{psutil.cpu_count(logical=False) or '?'} cores, {os.cpu_count()} threads"
    restricted = f", {len(usable)} usable by this process" if 0 < len(usable) < (os.cpu_count() or 0) else ""
    free = free_bytes(torch.device("cpu"))
    return [
        f"{platform.platform()}",
        f"{processor() or 'unknown processor'}: {cores}{restricted}",
        f"memory: {memory.total / GIB:.1f} GiB, {free / GIB:.1f} GiB free here",
        f"disk: {shutil.disk_usage(folder).free / GIB:.1f} GiB free in {folder}",
    ]


def devices() -> list[str]:
    """What policies can train on, and how."""
    import torch

    from cory.policies.compiled_blocks import missing
    from cory.runtime.device import computes_bfloat16, default_device, device_name
    from cory.runtime.memory import free_bytes

    def compiles(device: torch.device) -> str:
        return "compiles blocks" if (lacks := missing(device)) is None else f"policy.compile lacks {lacks}"

    cpu.configure_runtime(threads=0, matmul="auto")
    products = f"float32 products by {cpu.chosen_matmul()}"
    lines = [f"cpu: {torch.get_num_threads()} threads, {products}, {compiles(torch.device('cpu'))}"]
    for index in range(torch.accelerator.device_count()):
        device = torch.device(default_device(), index)
        bfloat16 = "bfloat16" if computes_bfloat16(device) else "no bfloat16"
        free = f"{free_bytes(device) / GIB:.1f} GiB free"
        lines.append(f"{device}: {device_name(device)}, {free}, {bfloat16}, {compiles(device)}")
    if len(lines) == 1:
        built = f"with CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        lines.append(f"no GPU (torch is built {built}); presets other than pocket ones need one")
    return lines


def versions() -> list[str]:
    """Versions of this project and of what it requires; a requirement that is not met is named."""
    from cory.runtime.provenance import commit

    python = f"Python {platform.python_version()} in {sys.prefix}"
    return [f"cory {__version__} ({commit() or 'no checkout'}), {python}", *map(_state, _requirements(None))]


def extras() -> list[str]:
    """Every extra: installed, or which of its packages are missing, and what it is for."""
    lines = []
    for name in (distribution("cory").metadata.get_all("Provides-Extra") or ()) if _is_installed() else ():
        missing = [one.name for one in _requirements(name) if not _is_met(one)]
        state = f"missing {', '.join(missing)}: pip install 'cory[{name}]'" if missing else "installed"
        lines.append(f"{name}: {state} (for {EXTRAS.get(name, 'an extra of this version')})")
    return lines or ["cory is run from a folder and not installed: its extras are in pyproject.toml"]


def _state(requirement: Requirement) -> str:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name}: MISSING, needed {requirement.specifier}"
    met = "" if _is_met(requirement) else f", which is not {requirement.specifier}: pip install -U cory"
    return f"{requirement.name} {found}{met}"


def _is_installed() -> bool:
    try:
        return bool(version("cory"))
    except PackageNotFoundError:
        return False


def _is_met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _requirements(extra: str | None) -> list[Requirement]:
    """The requirements of an extra, which may include others; without `extra` those of the project."""
    found: list[Requirement] = []
    for one in map(Requirement, (requires("cory") or ()) if _is_installed() else ()):
        always = one.marker is None or one.marker.evaluate({"extra": ""})
        if extra is None:
            found += [one] if always else []
        elif not always and one.marker is not None and one.marker.evaluate({"extra": extra}):
            nested = [inner for other in one.extras for inner in _requirements(other)]
            found += nested if one.name == "cory" else [one]
    return found
