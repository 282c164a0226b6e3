"""Provenance of results: command, versions, commit and machine of this process."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from cory.runtime import cpu
from cory.runtime.device import device_name

LEARNING_VERSION = 1
"""Changes whenever the same settings and seed learn something else; studies never mix two versions."""

RESULTS = "benchmarks/results"
"""Folder of committed results, which a program writes: a change there is no change of the code."""

SOURCES = ("agents", "cory_env")
"""Folders in which a new file is new code."""

PACKAGES = ("cory", "torch", "transformers", "numpy", "pettingzoo", "gymnasium")


def environment() -> dict[str, Any]:
    """Return command, versions, machine and commit of this process, as JSON."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": commit(),
        "learning_version": LEARNING_VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "matmul": cpu.chosen_matmul(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gpu": device_name(),
        "versions": {name: installed for name in PACKAGES if (installed := _version(name)) is not None},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit() -> str | None:
    """The commit of this project's checkout, `-dirty` with changes; None outside of one or without git.

    Changes of results (`RESULTS`) do not count, so that one study can be run after another, nor do new files
    outside of the packages.
    """
    root = Path(__file__).resolve().parents[3]
    project = root / "pyproject.toml"
    ours = project.exists() and re.search(
        r'^name = "cory"$', project.read_text(encoding="utf-8"), re.MULTILINE
    )
    if shutil.which("git") is None or not (root / ".git").exists() or not ours:
        return None
    if not (name := _git(root, "describe", "--always", "--abbrev=7", "--exclude=*")):
        return None
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){RESULTS}")
    changed = changed or _git(root, "ls-files", "--others", "--exclude-standard", "--", *SOURCES)
    return f"{name}-dirty" if changed else name


def processor() -> str:
    """Return the processor's name from /proc/cpuinfo or the platform."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(root: Path, *arguments: str) -> str:
    """What git prints in `root`, whatever repository the environment names; empty if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
