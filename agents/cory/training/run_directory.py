"""The run directory: what is written at the start of a run, on resume and at its end."""

import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cory.config.parsing import flat
from cory.config.schema import Config
from cory.distributed import ranks
from cory.report.model_card import write_card
from cory.runtime.provenance import environment
from cory.tracking.tracker import METRICS
from cory.training import checkpoint
from cory.training.resume import (
    LOCK,
    LOCK_HOLDER,
    check_settings_unchanged,
    is_empty,
    newest_whole,
    rewind,
)
from cory.training.trainer import Trainer
from cory_env.tasks.base import counted


def resumable(config: Config, run: Path, *, resume: str) -> tuple[Path | None, list[str]]:
    """The checkpoint to resume from, and why newer ones are skipped; ValueError if settings have changed."""
    if resume == "never":
        return None, []
    folder, skipped = newest_whole(run) if (run / "config.yaml").exists() else (None, [])
    if folder is None and (resume == "must" or skipped):
        why = "; ".join(skipped) or "it holds no checkpoint"
        raise ValueError(f"{run} cannot be resumed: {why}; name another run, or start it with --overwrite")
    if folder is not None:
        check_settings_unchanged(run, folder, flat(config))
    return folder, skipped


def begin(trainer: Trainer, run: Path) -> int:
    """Empty the run directory and write the settings; iteration 0.

    An older run's settings are removed last: until then the directory is known as a run that may be
    overwritten.
    """
    for path in sorted(run.iterdir(), key=lambda path: (path.name == "config.yaml", path.name)):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOCK, LOCK_HOLDER):
            path.unlink()
    write_settings(trainer.config, run, environment() | about(trainer))
    (run / METRICS).touch()
    return 0


def restore(trainer: Trainer, run: Path, folder: Path) -> int:
    """Load the checkpoint in `folder` and drop everything logged after it; the next iteration."""
    iteration = int(trainer.load(folder)["iteration"])
    ranks.of_first("the run directory", lambda: _go_back(trainer.config, run, folder, iteration))
    return iteration


def _go_back(config: Config, run: Path, folder: Path, iteration: int) -> None:
    """Make the run directory as it was when the checkpoint in `folder` was written."""
    rewind(run, iteration)
    for late in checkpoint.finished(run):
        if late > folder:
            shutil.rmtree(late)  # skipped, reported, and about to be written again
    best = checkpoint.read_best(run)
    if best is not None and best["iteration"] > iteration:
        (run / "checkpoints/best.json").unlink()
    history = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    history.setdefault("resumed", []).append({"iteration": iteration, **environment()})
    write_settings(config, run, history)


def choose_export(trainer: Trainer, run: Path) -> tuple[int, str | None]:
    """Load the best checkpoint's policies with `export_best`.

    Returns the iteration whose policies are to be exported, and a line on how last and best compare: None if
    there is no best checkpoint, since the task has no validation split or checkpoints are off.
    """
    best, last = checkpoint.read_best(run), trainer.config.iterations
    if best is None:
        return last, None
    iteration, score = best["iteration"], best["score"]
    text = f"by combined reward on the validation split iteration {iteration} is best ({score:.3f})"
    if iteration == last:
        return last, f"{text}, the last one, which is exported"
    if not trainer.config.export_best:
        exported = f"the exported policies are those of iteration {last} (--export-best exports the best)"
        return last, f"{text}; {exported}"
    trainer.load(checkpoint.folder_of(run, iteration))
    return iteration, f"{text}; its policies are exported, not those of iteration {last}"


def export(trainer: Trainer, run: Path, *, iteration: int | None = None) -> None:
    """Write every policy, as it is after `iteration` (by default the last), with its model card."""
    for name, policy in trainer.policies.items():
        folder = run / "policies" / name
        if trainer.config.export == "merged":
            policy.save_merged(folder)
        else:
            policy.save(folder)
        write_card(folder, name, flat(trainer.config), iterations=iteration)


def export_average(trainer: Trainer, run: Path, *, iteration: int) -> None:
    """Write the mean of the policies, as they are after `iteration`, as a model folder with its card.

    All ranks must call it.
    """
    with trainer.average() as mean:

        def write() -> None:
            mean.save_merged(run / mean.name)
            write_card(run / mean.name, mean.name, flat(trainer.config), iterations=iteration)

        ranks.of_first("the average", write)


def free_name(base: Path) -> Path:
    """`base`, or the first of base-2, base-3, ... that does not exist or is empty."""
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    return next(path for path in names if not path.exists() or (path.is_dir() and not any(path.iterdir())))


def check_unoccupied(run: Path, *, overwrite: bool) -> None:
    """Raise ValueError if the directory holds a run (unless `overwrite`) or anything else."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"{run} is a file; name a folder with --run")
    if not is_empty(run):
        if not overwrite:
            raise ValueError(
                f"the run directory {run} is not empty; name another with --run, or pass --overwrite"
            )
        if not (run / "config.yaml").exists():
            raise ValueError(
                f"{run} holds no run (no config.yaml) and is not emptied; name another with --run"
            )


def write_settings(config: Config, run: Path, made_on: Mapping[str, Any]) -> None:
    """Write config.yaml and environment.json."""
    checkpoint.write_text(run / "config.yaml", yaml.safe_dump(flat(config), sort_keys=False))
    checkpoint.write_text(run / "environment.json", json.dumps(made_on, indent=1))


def about(trainer: Trainer) -> dict[str, Any]:
    """What environment.json says of the game: the data, and the prompt template of each seat."""
    return {"data": data_of(trainer), "templates": {view.seat: view.template for view in trainer.game.views}}


def data_of(trainer: Trainer) -> dict[str, Any]:
    """How many queries each split has, and how many held-out ones evaluations during training use."""
    counts = counted(trainer.task)
    return counts | {"evaluated": min(counts["test"], trainer.config.evaluation.queries)}
