"""Checkpoints of a run: safetensors and JSON, with a manifest of sizes and sha256 sums written last."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cory.distributed import sharding
from cory.evaluation.records import BEST, best_of
from cory.runtime.files import let_read, move_aside, read_json, remove, sync, system_errors, write_text

MANIFEST = "MANIFEST.json"
STATE = "trainer_state.json"
NAME = re.compile(r"step-\d{6,}")
ALGORITHM = "algorithm"
"""Name of the two files of an algorithm's state: its structure as JSON, its tensors as safetensors."""


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of every parameter as `index.key` -> tensor, in the order of the groups.

    Tensors that parameters share, as the code tables of 8-bit moments, are there for each of them.
    """
    return _writable({
        f"{i}.{key}": torch.as_tensor(value)
        for i, parameter in enumerate(_parameters(optimizer))
        for key, value in optimizer.state.get(parameter, {}).items()
    })  # fmt: skip


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned; learning rates and other settings are not changed."""
    parameters = _parameters(optimizer)
    optimizer.state.clear()
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        parameter = parameters[int(index)]
        counter = tensor.ndim == 0 and tensor.dtype == torch.int64
        moment = sharding.like(parameter, tensor.to(parameter.device))
        optimizer.state[parameter][key] = int(tensor) if counter else moment


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file under a temporary name, then rename it."""
    part = path.with_name(path.name + ".part")
    save_file(_writable(tensors), part)
    part.replace(path)


def encode(value: Any, tensors: dict[str, Tensor], where: str = "the algorithm's state") -> Any:
    """Nested finite numbers, texts, lists, dicts and tensors as JSON; the tensors are added to `tensors`.

    ValueError for anything else.
    """
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {"dict": [[key, encode(item, tensors, f"{where}[{key!r}]")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [encode(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Tensor) and bool(value.isfinite().all()):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        f"{where} is {value!r:.80}; checkpoints hold finite numbers, texts, tensors, and lists and dicts of "
        "them, with texts or whole numbers as keys"
    )


def decode(encoded: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what `encode` was given."""
    if isinstance(encoded, list):
        return [decode(item, tensors) for item in encoded]
    if isinstance(encoded, dict):
        if "tensor" in encoded:
            return tensors[encoded["tensor"]]
        if "tuple" in encoded:
            return tuple(decode(item, tensors) for item in encoded["tuple"])
        return {key: decode(item, tensors) for key, item in encoded["dict"]}
    return encoded


def _writable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors, copies where two share memory: safetensors refuses to write those."""
    writable: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, tensor in tensors.items():
        contiguous = tensor.detach().contiguous()
        address = contiguous.untyped_storage().data_ptr()
        writable[name] = contiguous.clone() if address in memory else contiguous
        memory.add(address)
    return writable


def iteration_of(folder: Path) -> int:
    """The iteration whose start a checkpoint is, by its folder's name."""
    return int(folder.name.removeprefix("step-"))


def folder_of(run: Path, iteration: int) -> Path:
    """Return the folder of the checkpoint at the start of `iteration`."""
    return run / "checkpoints" / f"step-{iteration:06d}"


def save(
    run: Path,
    iteration: int,
    learners: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    algorithm: Mapping[str, Any] = MappingProxyType({}),
    critic: Any = None,
    documents: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Save the state at the start of `iteration` and return its folder.

    It holds weights, value heads and optimisers by policy name, those of a central critic under `critic`,
    `state` as JSON, `algorithm` (numbers and tensors), and `documents`, texts by file name. Written under a
    temporary name with the manifest last, synced, then renamed. A complete checkpoint of this iteration is
    not written again.
    """
    final = folder_of(run, iteration)
    with suppress(ValueError):  # missing or damaged
        verify(final)
        return final
    part = final.with_name(final.name + ".part")
    remove(part)
    part.mkdir(parents=True)
    trained = _trained(learners, critic)
    with system_errors(part):
        for name, (module, optimizer) in trained.items():
            module.save(part / name)
            save_file(optimizer_tensors(optimizer), part / f"optimizer_{name}.safetensors")
    for name, text in documents.items():
        (part / name).write_text(text, encoding="utf-8")
    (part / STATE).write_text(json.dumps({"iteration": iteration, **state}, indent=1))
    state_tensors: dict[str, Tensor] = {}
    encoded = json.dumps(encode(algorithm, state_tensors), indent=1)
    (part / f"{ALGORITHM}.json").write_text(encoded, encoding="utf-8")
    if state_tensors:
        with system_errors(part):
            save_file(_writable(state_tensors), part / f"{ALGORITHM}.safetensors")
    entries = {path.relative_to(part).as_posix(): _entry(path) for path in _files(part)}
    (part / MANIFEST).write_text(json.dumps(entries, indent=1))
    let_read(part)
    for path in (*_files(part), *(path for path in part.rglob("*") if path.is_dir()), part):
        sync(path)
    if os.path.lexists(final):
        move_aside(final, "damaged")
    part.replace(final)
    sync(final.parent)
    return final


def load(
    folder: Path, learners: Mapping[str, Any], *, critic: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verify a checkpoint, load it into the learners and the critic; return `state` and `algorithm`.

    Nothing is loaded that the manifest does not name.
    """
    names = verify(folder)
    with TemporaryDirectory() as links:
        view = Path(links)
        for name in names:
            (view / name).parent.mkdir(parents=True, exist_ok=True)
            (view / name).symlink_to((folder / name).resolve())
        for name, (module, optimizer) in _trained(learners, critic).items():
            module.restore(view / name)
            restore_optimizer(optimizer, load_file(view / f"optimizer_{name}.safetensors"))
        state = read_json(view / STATE)
        encoded = read_json(view / f"{ALGORITHM}.json")
        tensors = view / f"{ALGORITHM}.safetensors"
        return state, decode(encoded, load_file(tensors) if tensors.exists() else {})


def verify(folder: Path) -> list[str]:
    """The names of a checkpoint's files; ValueError if one that its manifest names is missing or changed.

    Other files, such as those of a file manager, are no part of it.
    """
    entries = _manifest(folder)
    if STATE not in entries:
        raise ValueError(
            f"{folder} does not hold the files of a checkpoint ({STATE} is not in its {MANIFEST}); use an "
            "older one"
        )
    for name, entry in entries.items():
        try:
            saved = _entry(folder / name)
        except OSError as error:
            raise ValueError(
                f"{folder} does not hold the files of its manifest ({name}: {error.strerror}); use an older "
                "checkpoint"
            ) from error
        if saved != entry:
            raise ValueError(
                f"{folder / name} is not what was saved (size or sha256); use an older checkpoint"
            )
    return list(entries)


def _manifest(folder: Path) -> dict[str, Any]:
    """The entries of a checkpoint's manifest by file name; ValueError if it is missing or damaged."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise ValueError(
            f"{folder} has no {MANIFEST}: it was never finished; resume from an older checkpoint"
        )
    try:
        entries = json.loads(manifest.read_text(), object_pairs_hook=_unlike)
        assert isinstance(entries, dict)
        assert not any(Path(name).is_absolute() or ".." in Path(name).parts for name in entries)
    except (ValueError, AssertionError, OSError) as error:
        raise ValueError(f"{manifest} is damaged ({error!r}); use an older checkpoint") from error
    return entries


def _unlike(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object; ValueError for a name that stands twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name stands twice")
    return entries


def finished(run: Path) -> list[Path]:
    """Return the checkpoints that were completely written, oldest first; `verify` detects later damage."""
    named = [path for path in (run / "checkpoints").glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(named, key=iteration_of)


def keep_last(run: Path, count: int, *, also: Iterable[int] = ()) -> list[Path]:
    """Remove all but the newest `count` checkpoints, the best one and those of the iterations `also`.

    Returns where other files in them now are.

    Files that no manifest names, and damaged checkpoints, are moved aside, not removed.
    """
    best = best_of(run)
    needed = {folder_of(run, at) for at in (*also, *([best["iteration"]] if best else ()))}
    folders = finished(run)
    kept = [_discard(folder) for folder in folders[: max(0, len(folders) - count)] if folder not in needed]
    return [path for path in kept if path is not None]


def _discard(folder: Path) -> Path | None:
    """Remove the files of a checkpoint; where what else it holds was moved to, None without anything."""
    if folder.is_symlink():
        folder.unlink()
        return None
    try:
        names = _manifest(folder)
    except ValueError:
        return move_aside(folder, "damaged")
    for name in [*names, MANIFEST]:
        (folder / name).unlink(missing_ok=True)
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):  # it is not empty
            path.rmdir()
    try:
        folder.rmdir()
    except OSError:
        return move_aside(folder, "rest")
    return None


def write_best(run: Path, iteration: int, score: float) -> None:
    """Record a checkpoint as the best."""
    content = {"iteration": iteration, "score": score, "split": "validation"}
    write_text(run / BEST, json.dumps(content))


def _trained(learners: Mapping[str, Any], critic: Any) -> dict[str, tuple[Any, torch.optim.Optimizer]]:
    trained = {name: (learner.policy, learner.optimizer) for name, learner in learners.items()}
    return trained if critic is None else {**trained, "critic": (critic, critic.optimizer)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
