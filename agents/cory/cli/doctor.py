"""`cory doctor`: machine, devices, versions and extras, and what is missing for what."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from cory.config.command_line import parse
from cory.runtime.terminal import say

EXTRAS = {
    "math": ("math_verify", "the judge math-verify:COLUMN"),
    "quant": ("bitsandbytes", "--learner.optimizer adam8bit, --lora.four-bit yes"),
    "gguf": ("gguf", "GGUF files as --policy.model"),
    "ray": ("ray", "cory study --engine ray"),
    **{name: (name, f"--log-to {name}") for name in ("wandb", "trackio", "mlflow")},
    "interop": ("torchrl", "the game in other libraries"),
}
"""A package of each extra, and what the extra is for."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Nothing to choose."""


def command(argv: Sequence[str]) -> None:
    """`cory doctor`: print the facts that a report of a problem needs."""
    parse(Options, argv, about="Show machine, devices, versions and extras.", command="cory doctor")
    import psutil
    import torch

    from cory.policies.compiled_blocks import missing
    from cory.runtime.device import computes_bfloat16, default_device, device_name, free_bytes
    from cory.runtime.provenance import environment

    made = environment()
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(".").free >> 20
    lines = ["machine", f"  {made['platform']}, {made['processor']}, {os.cpu_count()} threads"]
    lines += [f"  memory: {memory.available >> 20:,} of {memory.total >> 20:,} MiB free; disk {disk:,} MiB"]
    lines += ["\ndevices"]
    for index in range(-1, torch.accelerator.device_count()):
        device = torch.device("cpu") if index < 0 else torch.device(default_device(), index)
        name = f"{torch.get_num_threads()} threads" if index < 0 else device_name(device)
        bfloat16 = "bfloat16" if computes_bfloat16(device) else "no bfloat16"
        lacks = missing(device)
        compiles = "compiles blocks" if lacks is None else f"policy.compile lacks {lacks}"
        lines += [f"  {device}: {name}, {free_bytes(device) >> 20:,} MiB free, {bfloat16}, {compiles}"]
    lines += ["\nversions", f"  commit {made['commit'] or 'none: no git checkout'}, Python {made['python']}"]
    lines += [f"  {name} {version}" for name, version in made["versions"].items()]
    lines += ["\nextras"]
    for name, (package, use) in EXTRAS.items():
        state = "installed" if find_spec(package) else f"missing: pip install 'cory[{name}]'"
        lines += [f"  {name}: {state} (for {use})"]
    say("\n".join(lines))
