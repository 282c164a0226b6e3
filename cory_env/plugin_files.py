"""Modules of plug-ins: an importable module, or a Python file by its path."""

import hashlib
import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType


def module_of(name: str) -> ModuleType:
    """The module `package.module`, or that of the file `path/to/file.py`, the same for the same file.

    ImportError if there is none or running it fails.
    """
    if not name.endswith(".py"):
        return importlib.import_module(name)
    return _from_file(Path(name).expanduser().resolve())


@cache
def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise ImportError(f"there is no file {file}")
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ImportError(f"{type(error).__name__}: {error}") from error
    return module
