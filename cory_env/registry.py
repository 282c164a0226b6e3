"""Plug-ins by name: built in, registered in this process, installed, or named by their module or file."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from cory_env.nearest import did_you_mean, did_you_mean_path

T = TypeVar("T")


class Registry(Generic[T]):
    """The plug-ins of one kind: `name`, an entry point, `module:NAME` or `path/to/file.py:NAME`."""

    def __init__(
        self,
        setting: str,
        group: str,
        built_in: Mapping[str, T | str],
        *,
        form: str,
        takes: Sequence[str] = (),
    ) -> None:
        """`setting` names the kind in errors, as `kl.kind`; `group` is that of its entry points.

        A text in `built_in` is the place of what is imported when it is asked for. `form` says how a plug-in
        of the user is named: `module:function or file.py:function`; those of functions must be callable, and
        with the arguments `takes` where it names some.
        """
        self.setting, self.group, self.form, self.takes = setting, group, form, takes
        self.items: dict[str, T | str] = dict(built_in)

    def names(self) -> list[str]:
        """The names of all that is built in, registered or installed."""
        return [*self.items, *sorted(entry_points(group=self.group).names - self.items.keys())]

    def register(self, name: str, item: T) -> None:
        """Make `item` available by a name of its own in this process."""
        if name in self.names():
            raise ValueError(f"there is a {self.setting} {name!r} already; choose another name")
        self.items[name] = item
        REGISTERED.setdefault(name, []).append(item)

    def load(self, name: str) -> T:
        """What has the name; ValueError if nothing has, or if it cannot be imported or called."""
        found = self._found(name)
        if self.takes and callable(found):
            check_call(f"{self.setting} {name!r}", found, *self.takes)
        return found

    def _found(self, name: str) -> T:
        if name in self.items:  # before entry points: to find those takes 20 ms
            item = self.items[name]
            return self._imported(name, item) if isinstance(item, str) else item
        if self._is_place(name):
            return self._imported(name, name)
        installed = entry_points(group=self.group)
        if name not in installed.names:
            raise self.unknown(name)
        return self._imported(name, installed[name].value)

    def unknown(self, name: str) -> ValueError:
        """The error about a name that nothing has, with the nearest that something has."""
        known = self.names()
        what = f"{self.setting} is {name!r}" if "." in self.setting else f"no {self.setting} called {name!r}"
        return ValueError(f"{what}; there are {', '.join([*known, self.form])}{did_you_mean(name, known)}")

    def _is_place(self, name: str) -> bool:
        module, _, attribute = name.rpartition(":")
        return bool(module) and attribute.isidentifier()

    def _imported(self, name: str, place: str) -> T:
        module_name, _, attribute = place.rpartition(":")
        if not module_name:  # the place is a module
            module_name, attribute = attribute, ""
        try:
            module = module_of(module_name)
        except ImportError as error:
            raise ValueError(
                f"{self.setting} {name!r} cannot be imported ({error}); write {self.form}"
            ) from error
        if attribute and not hasattr(module, attribute):
            raise ValueError(
                f"{self.setting} {name!r} cannot be imported: {module_name} has no {attribute!r}; write "
                f"{self.form}"
            )
        item: Any = getattr(module, attribute) if attribute else module
        if "function" in self.form and not callable(item):
            raise ValueError(f"{self.setting} {name!r} is a {type(item).__name__}, not a function")
        return item  # type: ignore[no-any-return]


class Modules(Registry[ModuleType]):
    """Plug-ins that are whole modules: `name`, an entry point, an importable module or `path/to/file.py`."""

    def _is_place(self, name: str) -> bool:
        try:
            return name.endswith(".py") or importlib.util.find_spec(name) is not None
        except ImportError:
            return True  # importing it says what is wrong
        except ValueError:
            return False


def check_call(what: str, function: Callable[..., Any], *parameters: str) -> None:
    """Raise ValueError for a function, called `what`, that does not take these parameters in this order."""
    try:
        with suppress(ValueError):  # what is written in C may have no signature
            inspect.signature(function).bind(*parameters)
    except TypeError as error:
        raise ValueError(f"{what} cannot be called with ({', '.join(parameters)}): {error}") from error


REGISTERED: dict[str, list[Any]] = {}
"""The plug-ins that were registered in this process, by name; one name may have plug-ins of several kinds."""
LOADED: dict[Path, str] = {}
"""The sha256 of each file that was loaded as a plug-in in this process, as it was then."""
OURS = ("cory", "cory_env")
"""The packages of this project, whose modules are no plug-ins."""


def module_of(name: str) -> ModuleType:
    """The module `package.module`, or that of the file `path/to/file.py`, the same for the same file.

    ImportError if there is none or running it fails.
    """
    if not name.endswith(".py"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            raise
        except Exception as error:
            raise ImportError(f"{type(error).__name__}: {error}") from error
        if (path := getattr(module, "__file__", None)) and name.partition(".")[0] not in OURS:
            LOADED.setdefault(file := Path(path).resolve(), hashlib.sha256(file.read_bytes()).hexdigest())
        return module
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise ImportError(f"there is no file {file}{did_you_mean_path(file)}")
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    LOADED[file] = hashlib.sha256(file.read_bytes()).hexdigest()
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
