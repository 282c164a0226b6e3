"""Modules of plug-ins: an importable module, or a Python file by its path."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from cory_env.nearest import did_you_mean_path


def module_of(name: str) -> ModuleType:
    """The module `package.module`, or that of the file `path/to/file.py`, the same for the same file.

    It is also the same that `cory.runtime.plugins.load_file` returns, which may not import this package.
    ImportError if there is none or running it fails.
    """
    if not name.endswith(".py"):
        return importlib.import_module(name)
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise ImportError(f"there is no file {file}{did_you_mean_path(file)}")
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
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
