"""Plug-ins by name: a Python file, an importable module, or an entry point of an installed package.

`path/to/file.py` is a module from a file, `path/to/file.py:NAME` a function or class of it,
`package.module:NAME` the same of an importable module, and a NAME alone an entry point of the kind's group.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from cory.runtime.nearest import did_you_mean, did_you_mean_path


def load_plugin(name: str, *, setting: str, group: str) -> Any:
    """Return the function or class called `name`, None if it has none of the forms above.

    ValueError, which begins with `setting`, if it cannot be imported or is not there.
    """
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute.isidentifier():
        return _installed(name, setting, group)
    try:
        module = (
            load_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
        )
    except ImportError as error:
        raise ValueError(
            f"{setting} {name!r} cannot be imported ({error}); write module:NAME or path/to/file.py:NAME"
        ) from error
    if not hasattr(module, attribute):
        raise ValueError(f"{setting} {name!r} cannot be imported: {module_name} has no {attribute!r}")
    return getattr(module, attribute)


def load_function(name: str, *, setting: str, group: str, built_in: Collection[str]) -> Callable[..., Any]:
    """Return the function called `name`; ValueError, which lists what is `built_in`, if there is none."""
    found = load_plugin(name, setting=setting, group=group)
    if found is None:
        raise ValueError(
            f"{setting} is {name!r}; there are {', '.join(built_in)}, module:function or file.py:function"
            + did_you_mean(name, built_in)
        )
    if not callable(found):
        raise ValueError(f"{setting} {name!r} is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


def _installed(name: str, setting: str, group: str) -> Any:
    """Return what the entry point `name` of `group` stands for, None if there is none."""
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{setting} {name!r} cannot be imported ({error})") from error
    return None


def load_file(path: str) -> ModuleType:
    """Return the module in the file at `path`; the same module for the same file.

    ImportError if there is no such file or running it fails.
    """
    file = Path(path).expanduser().resolve()
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
