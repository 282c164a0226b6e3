"""What settings name outside of this package: files, folders and modules of users, known by their hashes.

The settings `algorithm: mine.py` say nothing of the code in that file. With its hash beside them a run whose
code, judge, data or model was edited is known to be another run. Models of the hub are known by their commit,
its data sets by the queries that were made of them; built-in parts are covered by the learning version of
studies. No module is imported for it.
"""

import ast
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cory import pocket
from cory.runtime import hub
from cory_env.contents import digest
from cory_env.registry import LOADED, OURS, REGISTERED

FOLDERS = ("adapter", "data", "judge", "model", "models")
"""Last parts of settings whose value may be a file or folder without a dot or slash in its name."""
ON_HUB = "commit "
"""What the source of a hub model begins with."""
LOADED_SPLIT = "loaded "
"""What the source of queries begins with, which a run knows that has loaded them."""
ALGORITHMS = Path(__file__).parents[1] / "algorithms"
NO_MODEL = re.compile(r"frozen|pool:\d+")
"""Players of a run that are none from elsewhere."""
BLOCK, BLOCKS = 1 << 20, 64
"""Bytes and number of the blocks that are hashed of a larger file, such as weights."""


def sources_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of everything that flat settings name, by the name they have for it.

    Of hub models it is the commit of the one last loaded. Of Python files and modules also that of each
    module which they import from beside them; of files above 64 MiB that of blocks spread evenly. ValueError
    for a plug-in that has changed since it was loaded here.
    """
    hashes: dict[str, str] = {}
    for setting, value in settings.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(text, str) or (setting.startswith("players.") and NO_MODEL.fullmatch(text)):
                continue
            for name, path in _named(setting, text):
                hashes[name] = _folder_sha256(path) if path.is_dir() else _file_sha256(path)
                if hashes[name] != LOADED.get(path.resolve(), hashes[name]):
                    raise ValueError(
                        f"{name} has changed since this session loaded it, and the old code would run; "
                        "restart the session, in a notebook its kernel"
                    )
                if path.suffix == ".py":
                    hashes |= {f"{name} ({module.name})": _file_sha256(module) for module in _imported(path)}
            hashes |= {name: digest(REGISTERED[name]) for name in _parts(text) if name in REGISTERED}
            for name in set(_parts(text)) - hashes.keys():
                if _may_be_on_hub(setting, name) and (commit := Path(hub.cached(name)).name):
                    hashes[name] = ON_HUB + commit
    return dict(sorted(hashes.items()))


def last_of(made: Mapping[str, Any]) -> dict[str, str]:
    """The sources that a run was begun or last resumed with, from its environment."""
    return dict((made.get("resumed") or [made])[-1].get("sources", {}))


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The names whose source is not what it was, in words (`mine.py has changed`); empty if all are.

    Queries, and models that have to be fetched or made, are compared where both have them: a study is
    planned, and its report is drawn, without them too.
    """
    names = []
    for name in sorted(before.keys() | now.keys()):
        both = [sources[name] for sources in (before, now) if name in sources]
        fetched = name in pocket.MADE_BY or any(source.startswith((ON_HUB, LOADED_SPLIT)) for source in both)
        if len(set(both)) > 1 or (len(both) == 1 and not fetched):
            names.append(name)
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} changed" if names else ""


def _may_be_on_hub(setting: str, name: str) -> bool:
    is_model = setting.rpartition(".")[2] in ("model", "models") or setting.startswith("players.")
    return (
        (is_model or ("/" in name and not setting.endswith("data")))
        and name not in pocket.MODELS
        and not hub.can_only_be_a_path(name)
        and not os.path.exists(name)
    )


def _parts(text: str) -> list[str]:
    """A value, and what is joined in it."""
    return list(dict.fromkeys([text, *re.split(r"\s*[+*]\s*", text)]))


def _named(setting: str, text: str) -> Iterator[tuple[str, Path]]:
    """What a value names: a path, `PATH:NAME`, `module:NAME`, an entry point, or several (`a + 2*b`)."""
    is_data = setting.rpartition(".")[2] in FOLDERS or setting.startswith("players.")
    for part in _parts(text):
        if part in pocket.MODELS and not setting.endswith((".data", ".adapter")):
            weights = pocket.MODELS[part] / "model.safetensors"
            if part in pocket.MADE_BY and weights.exists():
                yield part, weights
            continue  # whatever the working directory has of that name
        head, _, attribute = part.rpartition(":")
        is_rule = setting == "judge" and head == "regex"
        if is_rule or (setting == "algorithm" and (ALGORITHMS / f"{part}.py").exists()):
            continue  # this package's own
        for name in filter(None, (part, head)):
            path = os.path.expanduser(name)
            if (is_data or "/" in name or "." in name) and os.path.exists(path):
                yield name, Path(path)
        is_place = head and all(map(str.isidentifier, attribute.split(".")))
        modules = [head] if is_place else _installed().get(part, [])
        for plugin in REGISTERED.get(part, ()):
            modules = [*modules, getattr(plugin, "__module__", getattr(plugin, "__name__", ""))]
        if setting == "algorithm" and not modules:  # may be any importable module
            modules = [part]
        for module in modules:
            if (file := _module_file(module)) is not None:
                yield module, file


@cache
def _installed() -> dict[str, list[str]]:
    """The modules of the entry points that other packages add to this one, by name."""
    modules: dict[str, list[str]] = {}
    for group in entry_points().groups:
        for entry in entry_points(group=group) if group.startswith(f"{OURS[0]}.") else ():
            modules.setdefault(entry.name, []).append(entry.module)
    return modules


def _module_file(name: str) -> Path | None:
    """The file of a module that is neither this package's nor Python's; nothing is imported."""
    parts = name.split(".")
    if (
        parts[-1] == "py"
        or not all(map(str.isidentifier, parts))
        or parts[0] in {*OURS, "__main__", *sys.stdlib_module_names}
    ):
        return None
    folders: Any = [*sys.path, os.getcwd()]
    spec = None
    for part in parts:  # each as if on the path itself: finding `a.b` would import `a`
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin else None


def _imported(path: Path) -> list[Path]:
    """The modules that a file imports from its folder or the working directory, and what those import."""
    modules: dict[Path, None] = {}
    todo = [path.resolve()]
    while todo:
        file = todo.pop()
        for name in _import_names(file):
            for folder in dict.fromkeys((file.parent, Path.cwd())):
                place = folder.joinpath(*name.split("."))
                for module in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                    if module.is_file() and module != path.resolve() and module not in modules:
                        modules[module] = None
                        todo.append(module)
    return list(modules)


def _import_names(path: Path) -> list[str]:
    """The modules that a file imports, relative ones as if beside it; none of a file that is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = [node.module] if node.module else []
            names += [*module, *(".".join([*module, alias.name]) for alias in node.names)]
    return [name for name in names if name.split(".")[0] not in OURS]


def _folder_sha256(folder: Path) -> str:
    """Of the names and contents of a folder's files, hidden ones and caches aside; of a run, its policies."""
    if (folder / "config.yaml").exists() and (folder / "policies").is_dir():
        folder = folder / "policies"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        if not any(part.startswith((".", "__pycache__")) for part in inside.parts):
            digest.update(f"{inside.as_posix()}\0{_file_sha256(path)}\0".encode())
    return digest.hexdigest()


def _file_sha256(path: Path) -> str:
    status = path.stat()
    return _sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)  # a study asks for every run
def _sha256(path: Path, size: int, _changed_at: int) -> str:
    with path.open("rb") as file:
        if size <= BLOCK * BLOCKS:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode())
        for i in range(BLOCKS):
            file.seek(i * (size - BLOCK) // (BLOCKS - 1))
            digest.update(file.read(BLOCK))
    return digest.hexdigest()
