"""Small training runs from the command line, and the comparison of what two runs left. Quick to import."""

import importlib.metadata
import json
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from cory.cli.main import main
from cory.tracking.tracker import read, read_lines
from cory.training import checkpoint
from cory.training.overwriting import lock_of

FLAGS = [
    *("--task", "echo", "--policy.kind", "table", "--batch", "16", "--max-response", "1", "3"),
    *("--learner.lr", "0.1", "--evaluation.queries", "16", "--evaluation.every", "3"),
    *("--exchange.every", "2", "--kl.target", "1", "--threads", "1"),
    *("--payoff-scaling.scaling", "normalise", "--checkpoint-every", "2", "--keep-checkpoints", "9"),
]
"""Tables that play echo, with every part of the state in use."""

ECHO = ("train", "--task", "echo", "--policy.kind", "table")
PROMPTS = ("train", "--policy.model", "model", "--task", "prompts", "--judge", "regex:a", "--task.data")


def process_of(run: Path) -> int | None:
    """The process that is training in a run directory: it has the lock open."""
    lock = lock_of(run).lock_file
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(file.path == lock for file in process.open_files()):
                return process.pid
    return None


def train(run: Path, iterations: int, *more: str) -> int:
    """Run `cory train` with `FLAGS`; its exit code."""
    return main(["train", *FLAGS, "--iterations", str(iterations), "--run", str(run), *more])


def without_report(patch: pytest.MonkeyPatch) -> None:
    """Leave out the report: it has tests of its own and takes longer than a small run."""
    patch.setattr("cory.training.run.write_report", lambda run: run / "report.html")


def with_cached_entry_points(patch: pytest.MonkeyPatch) -> None:
    """Look up installed plugins once: scanning all packages takes a third of the start of a small run."""
    for module in ("cory.judges.parsing", "cory_env.registry"):
        patch.setattr(f"{module}.entry_points", _entry_points)
    patch.setattr("cory.runtime.provenance.version", _version)


_entry_points, _version = cache(importlib.metadata.entry_points), cache(importlib.metadata.version)


def finished_run(folders: pytest.TempPathFactory) -> Path:
    """A run of six iterations with `FLAGS`, made once per session; copy it before changing it."""
    return _finished_run(folders.getbasetemp())


@cache
def _finished_run(folder: Path) -> Path:
    run = folder / "finished-run"
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        assert train(run, 6) == 0
    return run


def cut_run(whole: Path, run: Path, at: int) -> Path:
    """What `whole` would have left in `run`, stopped as its checkpoint of iteration `at` was written."""
    for folder in checkpoint.finished(whole):
        if folder <= checkpoint.folder_of(whole, at):
            shutil.copytree(folder, checkpoint.folder_of(run, int(folder.name.removeprefix("step-"))))
    shutil.copy(whole / "config.yaml", run)
    for name in ("metrics.jsonl", "samples.jsonl"):
        lines = (whole / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (run / name).write_text("".join(line for line in lines if json.loads(line)["iteration"] < at))
    return run


def traces(run: Path, iterations: int) -> dict[str, Any]:
    """Everything that must not depend on where a run was interrupted."""
    last = checkpoint.folder_of(run, iterations)
    metrics = [
        {key: value for key, value in row.items() if not key.startswith(("time/", "speed/"))}
        for row in read(run)
    ]
    files = sorted(last.rglob("*.safetensors"))
    return {
        "tensors": {str(path.relative_to(last)): load_file(path) for path in files},
        "metrics": metrics,
        "state": json.loads((last / "trainer_state.json").read_text()),
        "samples": read_lines(run / "samples.jsonl"),
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs left the same traces, bit for bit."""
    if one.keys() != other.keys() or any(one[k] != other[k] for k in ("metrics", "state", "samples")):
        return False
    files = zip(one["tensors"].items(), other["tensors"].items(), strict=True)
    return all(
        name == name_2 and held.keys() == held_2.keys() and all(torch.equal(held[k], held_2[k]) for k in held)
        for (name, held), (name_2, held_2) in files
    )


def write_manifest(folder: Path) -> None:
    """Make the checkpoint's manifest agree with the files that are in the folder now."""
    files = [path for path in checkpoint._files(folder) if path.name != checkpoint.MANIFEST]
    entries = {str(path.relative_to(folder)): checkpoint._entry(path) for path in files}
    (folder / checkpoint.MANIFEST).write_text(json.dumps(entries))


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of files."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(argv, folder: Path, capsys, message: str) -> None:
    """`cory ARGV` ends with code 2 and one error line that holds `message`; nothing in `folder` changes."""
    before = contents(folder)
    capsys.readouterr()
    code = main([word.replace("{place}", str(folder)) for word in argv])
    error = capsys.readouterr().err
    assert code == 2, error
    assert error.startswith("error: "), error
    assert error.count("\n") == 1, error
    assert message in error
    assert "Traceback" not in error
    assert contents(folder) == before
