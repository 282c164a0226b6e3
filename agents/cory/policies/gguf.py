"""GGUF files (llama.cpp) as models: transformers reads them, and the weights are unpacked to float32."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MAGIC = b"GGUF"
KINDS = (
    (b"PK\x03\x04", "a zip archive, such as pickled weights, which are never read"),
    (b"\x80", "a pickle, which is never read"),
    (b"version https://git-lfs", "a pointer of Git LFS, in place of the file; fetch it with `git lfs pull`"),
)
"""First bytes of other files that stand where a model is expected."""


def is_gguf(path: str | Path) -> bool:
    """Whether the path is a file that begins as GGUF files do, whatever its name."""
    return Path(path).is_file() and _beginning(Path(path)).startswith(MAGIC)


def check_file(file: Path) -> None:
    """Raise ValueError, which says what the file is, unless it is a GGUF file; ImportError without `gguf`."""
    first = _beginning(file)
    if first.startswith(MAGIC):
        if find_spec("gguf") is None:
            raise ImportError(f"the model {file} needs the package gguf; pip install 'cory[gguf]'")
        return
    if file.suffix == ".safetensors" or first[8:10] == b'{"':
        what = f"weights without a configuration; give the folder that holds them, {file.parent}"
    else:
        what = next(
            (kind for start, kind in KINDS if first.startswith(start)), f"no GGUF file ({first[:4]!r})"
        )
    raise ValueError(
        f"the model {file} is {what}. Models are folders in from_pretrained layout, GGUF files and hub names"
    )


def source(path: str | Path) -> tuple[str | Path, dict[str, str]]:
    """Return what `from_pretrained` takes for a folder, a hub name or a GGUF file: a place and options."""
    if not is_gguf(path):
        return path, {}
    file = Path(path).resolve()
    return Path(_alone(file).name), {"gguf_file": file.name}


@cache
def _alone(file: Path) -> TemporaryDirectory[str]:
    """A folder with a link to the file only: transformers takes a tokenizer that lies beside one for its."""
    folder = TemporaryDirectory()
    (Path(folder.name) / file.name).symlink_to(file)
    return folder


def forget_format(model: Any) -> None:
    """Make a model that was read from a GGUF file an ordinary one, which can be trained and saved.

    Its weights are whole; transformers refuses to save it for the `quantization_config` that it leaves.
    """
    model.config.__dict__.pop("quantization_config", None)
    for name in ("hf_quantizer", "is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)


def _beginning(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(32)
