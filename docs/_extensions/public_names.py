"""A strict build fails unless every public name of `cory` and `cory_env` is documented on a page."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

PACKAGES = ("cory", "cory_env")

log = logging.getLogger(__name__)


def missing(documented: set[str]) -> Iterator[str]:
    """Yield every public name, of a package or of a class in it, without a docstring or not `documented`."""
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            full = f"{package.__name__}.{name}"
            found = getattr(package, name)
            if full not in documented:
                yield f"{full} is on no page"
            if not inspect.getdoc(found):
                yield f"{full} has no docstring"
            if inspect.isclass(found):
                yield from (f"{full}.{method} has no docstring" for method in _undocumented(found))


def _undocumented(owner: type[Any]) -> Iterator[str]:
    for name, value in vars(owner).items():
        function = getattr(value, "fget", None) or getattr(value, "func", None) or value
        if not name.startswith("_") and inspect.isroutine(function) and not inspect.getdoc(function):
            yield name


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each missing name."""
    documented = set(env.domains["py"].objects) | set(env.domains["py"].modules)
    for problem in missing(documented):
        log.warning("%s", problem)


def setup(app: Sphinx) -> dict[str, bool]:
    """Check after all pages have been read."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
