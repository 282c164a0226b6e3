"""What a run leaves on disk so that it can go on: safetensors and JSON, each folder complete or absent.

Shapes: none.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

MANIFEST = "MANIFEST.json"


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of every parameter as `index.key` -> tensor, in the order of the groups; counts as int64."""
    return {
        f"{i}.{key}": torch.as_tensor(value).contiguous()
        for i, parameter in enumerate(_parameters(optimizer))
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo `optimizer_tensors`; learning rates and other settings stay the optimiser's own."""
    parameters = _parameters(optimizer)
    optimizer.state.clear()
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        parameter = parameters[int(index)]
        counter = tensor.ndim == 0 and tensor.dtype == torch.int64
        optimizer.state[parameter][key] = int(tensor) if counter else tensor.to(parameter.device)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """One safetensors file, written beside its place and renamed into it."""
    part = path.with_name(path.name + ".part")
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, part)
    part.replace(path)


def write_text(path: Path, text: str) -> None:
    """A whole file of text or, where the process is killed or the power fails, the one before."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    _sync(part)
    part.replace(path)


def folder_of(run: Path, iteration: int) -> Path:
    """Where the state at the start of `iteration` lies."""
    return run / "checkpoints" / f"step-{iteration:06d}"


def save(
    run: Path,
    iteration: int,
    learners: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    critic: Any = None,
    documents: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """The state at the start of `iteration`: weights, value heads and optimisers by policy name, those of a
    central critic under `critic`, `state` as JSON, and `documents`, texts by file name.

    Written beside its place with the manifest last, synced, then renamed: what has its name is whole. A whole
    checkpoint of this iteration stays as it is. A disk without room is an OSError before anything is written.
    """
    final = folder_of(run, iteration)
    if final.exists() and is_whole(final):
        return final
    part = final.with_name(final.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    trained = _trained(learners, critic)
    _check_room(part, trained)
    with _system_errors(part):
        for name, (holder, optimizer) in trained.items():
            holder.save(part / name)
            save_file(optimizer_tensors(optimizer), part / f"optimizer_{name}.safetensors")
    for name, text in documents.items():
        (part / name).write_text(text, encoding="utf-8")
    (part / "trainer_state.json").write_text(json.dumps({"iteration": iteration, **state}, indent=1))
    entries = {str(path.relative_to(part)): _entry(path) for path in _files(part)}
    (part / MANIFEST).write_text(json.dumps(entries, indent=1))
    for path in (*_files(part), *(path for path in part.rglob("*") if path.is_dir()), part):
        _sync(path)
    shutil.rmtree(final, ignore_errors=True)
    part.replace(final)
    _sync(final.parent)
    return final


def load(folder: Path, learners: Mapping[str, Any], *, critic: Any = None) -> dict[str, Any]:
    """Put a verified checkpoint into the learners, by policy name, and the central critic, if there is one;
    the state that was saved with it."""
    verify(folder)
    for name, (holder, optimizer) in _trained(learners, critic).items():
        holder.restore(folder / name)
        restore_optimizer(optimizer, load_file(folder / f"optimizer_{name}.safetensors"))
    state: dict[str, Any] = json.loads((folder / "trainer_state.json").read_text())
    return state


def verify(folder: Path) -> None:
    """Refuse a checkpoint with a missing, added or changed file."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise ValueError(
            f"{folder} has no {MANIFEST}: it was never finished; resume from an older checkpoint"
        )
    try:
        entries = json.loads(manifest.read_text())
        assert isinstance(entries, dict)
    except (ValueError, AssertionError, OSError) as error:
        raise ValueError(f"{manifest} is damaged ({error!r}); use an older checkpoint") from error
    present = {str(path.relative_to(folder)) for path in _files(folder)} - {MANIFEST}
    if odd := sorted(present ^ set(entries)):
        raise ValueError(
            f"{folder} does not hold the files of its manifest ({odd[0]}); use an older checkpoint"
        )
    for name, entry in entries.items():
        if _entry(folder / name) != entry:
            raise ValueError(
                f"{folder / name} is not what was saved (size or sha256); use an older checkpoint"
            )


def is_whole(folder: Path) -> bool:
    """Whether `verify` has nothing to say."""
    try:
        verify(folder)
    except ValueError:
        return False
    return True


def finished(run: Path) -> list[Path]:
    """The checkpoints that have their name, oldest first; whether they are still whole, `verify` says."""
    return sorted(path for path in (run / "checkpoints").glob("step-*") if path.suffix != ".part")


def keep_last(run: Path, count: int) -> None:
    """Remove the oldest checkpoints beyond `count`, but not the best."""
    best = read_best(run)
    spare = folder_of(run, best["iteration"]) if best else None
    found = finished(run)
    for folder in found[: max(0, len(found) - count)]:
        if folder != spare:
            shutil.rmtree(folder)


def read_best(run: Path) -> dict[str, Any] | None:
    """Iteration and score of the best checkpoint so far.

    None where none was told or the note is damaged: the next evaluation tells it anew.
    """
    try:
        told = json.loads((run / "checkpoints/best.json").read_text(encoding="utf-8"))
        return {"iteration": int(told["iteration"]), "score": float(told["score"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_best(run: Path, iteration: int, score: float) -> None:
    """From now on this checkpoint is the best."""
    write_text(run / "checkpoints/best.json", json.dumps({"iteration": iteration, "score": score}))


def _check_room(folder: Path, trained: Mapping[str, tuple[Any, torch.optim.Optimizer]]) -> None:
    """Weights once and the optimiser's states; other files are small beside them."""
    needed = 1 << 20
    for _, optimizer in trained.values():
        tensors = [*_parameters(optimizer), *optimizer_tensors(optimizer).values()]
        needed += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"a checkpoint needs {needed / 1e6:.0f} MB and {free / 1e6:.0f} MB are free",
            str(folder),
        )


@contextmanager
def _system_errors(folder: Path) -> Iterator[None]:
    """Errors of the system that safetensors and tokenizers tell in words of their own, as OSError."""
    try:
        yield
    except Exception as error:
        if (told := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        number = int(told[1])
        raise OSError(number, os.strerror(number), str(folder)) from error


def _trained(learners: Mapping[str, Any], critic: Any) -> dict[str, tuple[Any, torch.optim.Optimizer]]:
    """What can save and restore itself, and its optimiser, by name."""
    told = {name: (learner.policy, learner.optimizer) for name, learner in learners.items()}
    return told if critic is None else {**told, "critic": (critic, critic.optimizer)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
