"""The run directory: what is written at the start of a run, on resume and at its end."""

import itertools
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from cory.config.parsing import MEASURED, as_json, changes, completed
from cory.config.schema import Config
from cory.config.values import flat
from cory.distributed import ranks
from cory.evaluation.records import BEST, EXPORTED, best_of
from cory.report.model_card import write_card
from cory.runtime.files import (
    let_read,
    move_aside,
    read_json,
    remove,
    replace_folder,
    system_errors,
    write_text,
)
from cory.runtime.provenance import environment
from cory.runtime.sources import LOADED_SPLIT, changed, last_of, sources_of
from cory.runtime.yaml_files import read_yaml
from cory.tracking.tracker import METRICS, SAMPLES, read_lines
from cory.training import checkpoint
from cory.training.held_out import averaged, validation_count
from cory.training.overwriting import (
    check_unoccupied,
    is_empty,
    is_marked,
    mark,
    move_run_aside,
)
from cory.training.trainer import Trainer
from cory_env.tasks.base import counted, queries_digest

Resume = Literal["never", "auto", "must"]

CHANGEABLE = (
    "alerts.",
    "checkpoint_every",
    "evaluation.every",
    "export",
    "export_best",
    "iterations",
    "judge.max_failures",
    "judge.memory_mb",
    "judge.timeout",
    "keep_checkpoints",
    "log_to",
    "shard",
    "threads",
)
"""Settings that may change on resume: names or the beginnings of names."""


class Plan(NamedTuple):
    """How a run starts in its directory."""

    resumed: Path | None
    """The checkpoint to resume; None: start anew."""
    skipped: list[str]
    """Why later ones are not resumed."""
    overwrites: bool
    """Whether an older run is moved aside first."""


@ranks.on_main_process
def examine(config: Config, run: Path, *, resume: Resume, overwrite: bool) -> Plan:
    """How a run starts in `run`.

    ValueError if `run` holds something that must not be overwritten, nothing to resume where it must, or a
    run with other settings.
    """
    resumed: Path | None = None
    skipped: list[str] = []
    if resume != "never":
        there = (run / "config.yaml").exists()
        resumed, skipped = newest_whole(run) if there else (None, [])
        has_begun = is_marked(run) and not never_started(run)
        if resumed is None and (resume == "must" or skipped or has_begun):
            why = "; ".join(skipped) or "it holds no checkpoint"
            if not there and (finished := checkpoint.finished(run)):
                why = f"its config.yaml is missing; copy that of {finished[-1]} to its place"
            raise ValueError(
                f"{run} cannot be resumed: {why}; name another run, or start it anew with --overwrite and "
                "without --resume"
            )
    if resumed is not None:
        check_settings_unchanged(run, resumed, config)
    elif not (resume == "auto" and never_started(run)):
        check_unoccupied(run, overwrite=overwrite)
        return Plan(None, skipped, overwrites=not is_empty(run))
    return Plan(resumed, skipped, overwrites=False)


def newest_whole(run: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies, or None, and why newer ones were skipped."""
    skipped = []
    for folder in reversed(checkpoint.finished(run)):
        try:
            checkpoint.verify(folder)
        except ValueError as error:
            skipped.append(str(error))
            continue
        return folder, skipped
    return None, skipped


def never_started(run: Path) -> bool:
    """Whether this is a run that was killed before its first iteration: CORY's folder, no metrics."""
    if not is_marked(run) or checkpoint.finished(run):
        return False
    return not (run / METRICS).exists() or not read_lines(run / METRICS)


def check_settings_unchanged(run: Path, folder: Path, config: Config) -> None:
    """Raise ValueError with all settings that differ from a checkpoint's and may not be changed on resume.

    Also for fewer iterations than the checkpoint has.
    """
    before = completed(read_yaml(folder / "config.yaml"))
    now = as_json(config)
    if config.iterations < (done := checkpoint.iteration_of(folder)):
        raise ValueError(
            f"{run} has {done} iterations, and iterations is {config.iterations}; give {done} or more, or "
            "start another run"
        )
    opponents = {"checkpoint_every"} if config.pool else set()  # a pool plays with checkpoints
    differing = changes(before, now, allowed=tuple(name for name in CHANGEABLE if name not in opponents))
    constant = {"learner.decay": "constant", "kl.final": None}
    scheduled = [name for name, value in constant.items() if now.get(name, value) != value]
    if scheduled and before.get("iterations") != now.get("iterations"):
        differing.append(
            f"iterations was {before['iterations']} and is {now['iterations']} ({scheduled[0]} depends on it)"
        )
    if differing:
        raise ValueError(
            f"{run} began with other settings: {'; '.join(differing)}. Leave them as they were, or start "
            "another run"
        )


def with_measured(config: Config, folder: Path) -> Config:
    """The settings with what the run measured that a checkpoint is of, in place of `auto`."""
    now, saved = flat(config), completed(read_yaml(folder / "config.yaml"))
    return Config.from_flat({name: saved[name] for name in MEASURED if now[name] == "auto"}, config)


def check_room(trainer: Trainer, run: Path) -> None:
    """Raise ValueError where the disk has no room for the policies and, if any is written, a checkpoint."""
    trained = [weight for learner in trainer.learners.values() for weight in learner.trainable]
    weights = sum(weight.numel() * weight.element_size() for weight in trained)
    needed = 4 * weights if trainer.config.checkpoint_every else weights  # with two moments of each
    free = shutil.disk_usage(run if run.exists() else run.parent).free
    if free < needed:
        raise ValueError(
            f"{run} will take {needed / 1e6:,.0f} MB or more, and its disk has {free / 1e6:,.0f} MB; make "
            "room, or name another with --run"
        )


@ranks.on_main_process
def begin(trainer: Trainer, run: Path, *, overwrites: bool) -> list[str]:
    """Start a run in its directory, from which an older one is moved aside; a line that says where to."""
    check_room(trainer, run)
    lines = [f"the run that was in {run} is now {move_run_aside(run)}"] if overwrites else []
    mark(run)
    about = {
        "data": data_of(trainer),
        "templates": {view.seat: view.template for view in trainer.game.views},
        "sources": sources_and_splits(trainer),
    }
    write_settings(flat(trainer.config), run, environment() | about)
    (run / METRICS).touch()
    return lines


@ranks.on_main_process
def go_back(trainer: Trainer, run: Path, folder: Path, iteration: int) -> list[str]:
    """Make the run directory as it was when the checkpoint in `folder`, of `iteration`, was written.

    Returns lines on what was moved aside or is lost.
    """
    for path in (run / METRICS, run / SAMPLES):
        if path.exists():
            rows = [row for row in read_lines(path) if row["iteration"] < iteration]
            write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    late = [path for path in checkpoint.finished(run) if path > folder]  # their names are needed again
    lines = [f"the skipped checkpoint is kept as {move_aside(path, 'damaged')}" for path in late]
    best = best_of(run)
    if best is not None and best["iteration"] > iteration:
        (run / BEST).unlink()
    history = read_json(folder / "environment.json")
    resumed: dict[str, Any] = {
        "iteration": iteration,
        **environment(),
        "sources": sources_and_splits(trainer),
    }
    if lost := sorted(set(range(iteration)).difference(logged_iterations(run))):
        resumed["lost_metrics"] = (
            f"{run / METRICS} has lost {len(lost)} of the iterations before {iteration}, from {lost[0]} on; "
            "the run goes on, and its curves lack them"
        )
        lines.append(resumed["lost_metrics"])
    if words := changed(last_of(history), resumed["sources"]):
        lines.append(f"{words} since this run began: from here on it is another run")
    history.setdefault("resumed", []).append(resumed)
    write_settings(flat(trainer.config), run, history)
    return lines


@ranks.on_main_process
def check_complete(run: Path, iterations: int, *, start: int = 0) -> None:
    """Raise RuntimeError unless every iteration since `start` has exactly one row of metrics."""
    rows = [iteration for iteration in logged_iterations(run) if iteration >= start]
    if rows != list(range(start, iterations)):
        since = f" from {start} on" if start else ""
        raise RuntimeError(
            f"{run / METRICS} holds {len(rows)} iterations{since}, the run has {iterations - start}; its "
            "policies are exported, and its curves lack what is missing"
        )


def logged_iterations(run: Path) -> list[int]:
    """The iterations that have metrics of training, in the order of their rows."""
    rows = read_lines(run / METRICS) if (run / METRICS).exists() else []
    return [row["iteration"] for row in rows if "time/update/seconds" in row]


def choose_export(trainer: Trainer, run: Path) -> tuple[int, str | None]:
    """Load the best checkpoint's policies with `export_best`.

    Returns the iteration whose policies are to be exported, and a line on how last and best compare: None if
    there is no best checkpoint, since the task has no validation split or checkpoints are off.
    """
    best, last = ranks.on_main_process(best_of)(run), trainer.config.iterations
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


@ranks.on_main_process
def export(trainer: Trainer, run: Path, *, iteration: int) -> list[str]:
    """Write every policy, as it is after `iteration`, with its model card.

    Returns a line for a folder of older policies that was moved aside, as it holds other files.
    """
    part = run / "policies.part"
    remove(part)
    for name, policy in trainer.policies.items():
        with system_errors(part):
            if trainer.config.export == "merged":
                policy.save_merged(part / name)
            else:
                policy.save(part / name)
        write_card(part / name, name, flat(trainer.config), iterations=iteration)
    if (run / EXPORTED).exists():  # files are replaced one by one
        write_text(run / EXPORTED, "{}\n")
    moved = _renamed(part, run / "policies")
    content = {"iterations": trainer.config.iterations, "after": iteration}
    write_text(run / EXPORTED, json.dumps(content) + "\n")
    return moved


def export_average(trainer: Trainer, run: Path, *, iteration: int) -> list[str]:
    """Write the mean of the policies, as they are after `iteration`, as a model folder with its card.

    All ranks must call it. Returns lines as `export` does.
    """
    with averaged(trainer) as mean:

        @ranks.on_main_process
        def write() -> list[str]:
            part = run / f"{mean.name}.part"
            remove(part)
            with system_errors(part):
                mean.save_merged(part)
            write_card(part, mean.name, flat(trainer.config), iterations=iteration)
            return _renamed(part, run / mean.name)

        return write()


def _renamed(part: Path, final: Path) -> list[str]:
    let_read(part)
    aside = replace_folder(part, final)
    return [] if aside is None else [f"{final} held other files too; it is now {aside}"]


def free_name(base: Path) -> Path:
    """`base`, or the first of base-2, base-3, ... that does not exist or is empty."""
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    return next(
        path for path in names if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
    )


def write_settings(settings: Mapping[str, Any], run: Path, made_on: Mapping[str, Any]) -> None:
    """Write config.yaml and environment.json."""
    write_text(run / "config.yaml", yaml.safe_dump(dict(settings), sort_keys=False))
    write_text(run / "environment.json", json.dumps(made_on, indent=1))


def sources_and_splits(trainer: Trainer) -> dict[str, str]:
    """The hashes of what the settings name outside of this package, and of the queries made of it."""
    queries = {
        f"{split} split": LOADED_SPLIT + queries_digest(trainer.task, split) for split in ("train", "test")
    }
    return sources_of(flat(trainer.config)) | queries


def data_of(trainer: Trainer) -> dict[str, Any]:
    """How many queries each split has, and how many held-out ones evaluations during training use."""
    counts = counted(trainer.task)
    return counts | {"evaluated": min(counts["test"], trainer.config.evaluation.queries)}
