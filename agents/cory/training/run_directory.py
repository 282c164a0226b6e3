"""The run directory: what is written at the start of a run, on resume and at its end."""

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cory.config.schema import Config
from cory.config.values import flat
from cory.distributed import ranks
from cory.report.model_card import write_card
from cory.runtime.files import move_aside, read_json, remove, replace_folder, write_text
from cory.runtime.provenance import environment
from cory.runtime.sources import changed, sources_of
from cory.tracking.tracker import METRICS
from cory.training import checkpoint
from cory.training.held_out import averaged, validation_count
from cory.training.overwriting import mark
from cory.training.resume import check_settings_unchanged, missing_metrics, newest_whole, rewind
from cory.training.trainer import Trainer
from cory_env.tasks.base import counted


def resumable(config: Config, run: Path, *, resume: str) -> tuple[Path | None, list[str]]:
    """The checkpoint to resume from, and why newer ones are skipped; ValueError if settings have changed."""
    if resume == "never":
        return None, []
    there = (run / "config.yaml").exists()
    folder, skipped = newest_whole(run) if there else (None, [])
    if folder is None and (resume == "must" or skipped):
        why = "; ".join(skipped) or "it holds no checkpoint"
        if not there and (finished := checkpoint.finished(run)):
            why = f"its config.yaml is missing; copy that of {finished[-1]} to its place"
        raise ValueError(f"{run} cannot be resumed: {why}; name another run, or start it with --overwrite")
    if folder is not None:
        check_settings_unchanged(run, folder, flat(config))
    return folder, skipped


def begin(trainer: Trainer, run: Path) -> int:
    """Mark the empty directory as CORY's and write the settings; iteration 0."""
    mark(run)
    write_settings(trainer.config, run, environment() | about(trainer))
    (run / METRICS).touch()
    return 0


def restore(trainer: Trainer, run: Path, folder: Path) -> tuple[int, list[str]]:
    """Load the checkpoint in `folder` and drop the rows logged after it.

    Returns the next iteration, and lines on what was moved aside or is lost.
    """
    iteration = int(trainer.load(folder)["iteration"])
    lines = ranks.broadcast_object(
        "the run directory", lambda: _go_back(trainer.config, run, folder, iteration)
    )
    return iteration, lines


def _go_back(config: Config, run: Path, folder: Path, iteration: int) -> list[str]:
    """Make the run directory as it was when the checkpoint in `folder` was written."""
    rewind(run, iteration)
    late = [one for one in checkpoint.finished(run) if one > folder]  # skipped; their names are needed again
    lines = [f"the skipped checkpoint is kept as {move_aside(one, 'damaged')}" for one in late]
    best = checkpoint.read_best(run)
    if best is not None and best["iteration"] > iteration:
        (run / "checkpoints/best.json").unlink()
    history = read_json(folder / "environment.json")
    resumed: dict[str, Any] = {
        "iteration": iteration,
        **environment(),
        "sources": sources_of(flat(config)),
    }
    if note := missing_metrics(run, iteration):
        lines.append(note)
        resumed["lost_metrics"] = note
    before = (history.get("resumed") or [history])[-1].get("sources", {})
    if words := changed(before, resumed["sources"]):
        lines.append(f"{words} since this run began: from here on it is another run")
    history.setdefault("resumed", []).append(resumed)
    write_settings(config, run, history)
    return lines


def choose_export(trainer: Trainer, run: Path) -> tuple[int, str | None]:
    """Load the best checkpoint's policies with `export_best`.

    Returns the iteration whose policies are to be exported, and a line on how last and best compare: None if
    there is no best checkpoint, since the task has no validation split or checkpoints are off.
    """
    best, last = checkpoint.read_best(run), trainer.config.iterations
    if best is None:
        count = validation_count(trainer)
        return last, None if not trainer.config.export_best else (
            f"export_best: no checkpoint was chosen on {count} validation queries (16 are needed, and "
            f"checkpoints); the policies of iteration {last}, the last one, are exported"
        )
    iteration, score = best["iteration"], best["score"]
    text = f"by combined reward on the validation split iteration {iteration} is best ({score:.3f})"
    if iteration == last:
        return last, f"{text}, the last one, which is exported"
    if not trainer.config.export_best:
        exported = f"the exported policies are those of iteration {last} (--export-best exports the best)"
        return last, f"{text}; {exported}"
    try:
        trainer.load(checkpoint.folder_of(run, iteration))
    except ValueError as error:
        raise ValueError(
            f"the best checkpoint cannot be exported: {error}; the last one can: cory train --run {run} "
            "--resume must --no-export-best"
        ) from error
    return iteration, f"{text}; its policies are exported, not those of iteration {last}"


def export(trainer: Trainer, run: Path, *, iteration: int | None = None) -> list[str]:
    """Write every policy, as it is after `iteration` (by default the last), with its model card.

    Returns a line for a folder of older policies that was moved aside, as it holds other files.
    """
    part = run / "policies.part"
    remove(part)
    for name, policy in trainer.policies.items():
        if trainer.config.export == "merged":
            policy.save_merged(part / name)
        else:
            policy.save(part / name)
        write_card(part / name, name, flat(trainer.config), iterations=iteration)
    return _renamed(part, run / "policies")


def export_average(trainer: Trainer, run: Path, *, iteration: int) -> list[str]:
    """Write the mean of the policies, as they are after `iteration`, as a model folder with its card.

    All ranks must call it. Returns lines as `export` does.
    """
    with averaged(trainer) as mean:

        def write() -> list[str]:
            part = run / f"{mean.name}.part"
            remove(part)
            mean.save_merged(part)
            write_card(part, mean.name, flat(trainer.config), iterations=iteration)
            return _renamed(part, run / mean.name)

        return ranks.broadcast_object("the average", write)


def _renamed(part: Path, final: Path) -> list[str]:
    aside = replace_folder(part, final)
    return [] if aside is None else [f"{final} held other files too; it is now {aside}"]


def free_name(base: Path) -> Path:
    """`base`, or the first of base-2, base-3, ... that does not exist or is empty."""
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    return next(
        path for path in names if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
    )


def write_settings(config: Config, run: Path, made_on: Mapping[str, Any]) -> None:
    """Write config.yaml and environment.json."""
    write_text(run / "config.yaml", yaml.safe_dump(flat(config), sort_keys=False))
    write_text(run / "environment.json", json.dumps(made_on, indent=1))


def about(trainer: Trainer) -> dict[str, Any]:
    """What environment.json says of the run: its data, the prompt templates, the sources settings name."""
    return {
        "data": data_of(trainer),
        "templates": {view.seat: view.template for view in trainer.game.views},
        "sources": sources_of(flat(trainer.config)),
    }


def data_of(trainer: Trainer) -> dict[str, Any]:
    """How many queries each split has, and how many held-out ones evaluations during training use."""
    counts = counted(trainer.task)
    return counts | {"evaluated": min(counts["test"], trainer.config.evaluation.queries)}
