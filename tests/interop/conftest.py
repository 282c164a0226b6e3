"""The files of examples/ as modules: what they show is what is tested."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """By path: `examples` is no package, and other distributions install one of that name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"cory_example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
