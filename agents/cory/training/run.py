"""A training run from start to end: directory, progress, iterations, report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import torch

from cory.config.schema import Config
from cory.config.values import flat
from cory.distributed import ranks
from cory.judges import weighted_sum
from cory.policies import compiled_blocks
from cory.policies.causal_lm import CausalLMPolicy
from cory.report.page import write_report
from cory.report.summary import headline
from cory.runtime.memory import free_bytes
from cory.runtime.signals import Signals
from cory.tracking import external, log_to
from cory.tracking.progress import Log, RunProgress
from cory.tracking.tracker import Tracker
from cory.training import checkpoint, memory_estimate
from cory.training.factory import configure_runtime, silence_transformers
from cory.training.loop import Loop, documents
from cory.training.overwriting import check_unoccupied, is_empty
from cory.training.resume import check_complete, locked, moved_aside, never_started, with_measured
from cory.training.run_directory import (
    begin,
    choose_export,
    data_of,
    export,
    export_average,
    restore,
    resumable,
)
from cory.training.trainer import Trainer

Resume = Literal["never", "auto", "must"]


def train(
    config: Config,
    run: Path,
    *,
    overwrite: bool = False,
    resume: Resume = "never",
    make_trainer: Callable[[Config], Trainer] = Trainer,
    callbacks: Sequence[object] = (),
    report: bool = True,
    validate: bool = True,
    log: Log = "auto",
    about: Sequence[str] = (),
) -> Path:
    """Train by `config` in `run`, from the start or from its newest checkpoint; the path of the report.

    `make_trainer` gets the settings, with what a resumed run measured. `callbacks`: see
    `cory.training.loop.Callback`.
    Without `report` no page is drawn; without `validate` no best checkpoint is kept, unless it is exported.
    `log` is how progress is shown (`cory.tracking.progress.Log`); `about` are lines that a new run begins
    with. Raises `Stopped` after a signal; its notes say how to resume.
    """
    configure_runtime(config)
    silence_transformers()
    places = log_to.split(config.log_to) if ranks.is_main_process() else []
    others = [name for name in places if name != log_to.TENSORBOARD]
    external.check_installed(others)
    run = join_ranks(config, run)
    plan = ranks.broadcast_object(
        "the run directory", lambda: examine(config, run, resume=resume, overwrite=overwrite)
    )
    resumed = plan.resumed
    if resumed is not None:
        config = with_measured(config, resumed)
    trainer = make_trainer(config)  # bad settings are refused before anything is written
    with ExitStack() as stack:
        stack.enter_context(weighted_sum.closing(trainer.task))
        log_folder, notes = stack.enter_context(run_of_rank(run, plan))
        if resumed is None:
            start = ranks.broadcast_object("the run directory", lambda: begin(trainer, run))
        else:
            start, lines = restore(trainer, run, resumed)
            notes += [f"warning: {line}" for line in lines]
        weighted_sum.of_task(trainer.task).log_to(run / "judge.log")
        texts = [(run / name).read_text(encoding="utf-8") for name in ("config.yaml", "environment.json")]
        shown: Log = log if ranks.is_main_process() else "quiet"
        with RunProgress(start=start, iterations=config.iterations, log=shown) as progress:
            warn = progress.warn if ranks.is_main_process() else lambda text: None
            for line in (*(about if resumed is None else ()), *opening_lines(trainer, run, start, resumed)):
                progress.say(line)
            skipped = (f"skipped: {reason}" for reason in plan.skipped)
            for warning in (*notes, *skipped, *memory_warnings(trainer)):
                warn(warning)
            also = external.start(others, run, flat(config), resumed=resumed is not None, warn=warn)
            with (
                Signals() as signals,
                Tracker(
                    log_folder, tensorboard=log_to.TENSORBOARD in places, external=also, say=warn
                ) as tracker,
            ):
                loop = Loop(
                    trainer,
                    run,
                    tracker,
                    signals,
                    say=warn,
                    documents=documents(texts[0], texts[1], seed=config.seed),
                    callbacks=callbacks,
                    validates=validate or config.export_best,
                )
                loop.go(start, on_progress=progress.update)
            progress.update("exporting policies", {})
            export_policies(trainer, run, start, say=progress.say)
            progress.update("drawing the report", {})
            path = ranks.broadcast_object(
                "the report", lambda: write_report(run) if report else run / "report.html"
            )
            for line in headline(run) if ranks.is_main_process() else ():
                progress.say(line)
        return path


class Plan(NamedTuple):
    """How a run starts in its directory."""

    checkpoints: list[Path]
    """Those that are there."""
    resumed: Path | None
    """The one to resume; None: start anew."""
    skipped: list[str]
    """Why later ones are not resumed."""
    overwrites: bool
    """Whether an older run is moved aside first."""


def examine(config: Config, run: Path, *, resume: Resume, overwrite: bool) -> Plan:
    """How a run starts in `run`.

    ValueError if `run` holds something that must not be overwritten, or nothing to resume where it must.
    """
    resumed, skipped = resumable(config, run, resume=resume)
    begins = resumed is None and not (resume == "auto" and never_started(run))
    if begins:
        check_unoccupied(run, overwrite=overwrite)
    return Plan(checkpoint.finished(run), resumed, skipped, overwrites=begins and not is_empty(run))


def join_ranks(config: Config, run: Path) -> Path:
    """Join the processes beside this one; the run directory of rank 0.

    ValueError for ranks with unlike settings, and for fewer games than ranks.
    """
    ranks.join()
    ranks.check_same("settings", flat(config))
    if config.batch < ranks.count():
        raise ValueError(
            f"a batch of {config.batch} games cannot be shared by {ranks.count()} processes; start fewer, or "
            "raise batch"
        )
    return ranks.broadcast_object("the run directory", lambda: run)


@contextmanager
def run_of_rank(run: Path, plan: Plan) -> Iterator[tuple[Path, list[str]]]:
    """Where this rank logs: the locked run directory for rank 0, a temporary folder for others.

    Beside it a line on the older run that was moved aside. ValueError if another process trains in the run
    directory, or has since the plan was made.
    """
    with ExitStack() as stack:

        def lock() -> list[str]:
            notes = []
            with ExitStack() as older:  # its lock is kept until this run has its own
                if plan.overwrites:
                    aside = older.enter_context(moved_aside(run))
                    notes.append(f"the run that was in {run} is now {aside}")
                run.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(run))
            expected = [] if plan.overwrites else plan.checkpoints
            occupied = plan.resumed is None and not (is_empty(run) or never_started(run))
            if occupied or checkpoint.finished(run) != expected:
                raise ValueError(f"another process has just trained in {run}; start this one again")
            return notes

        notes = ranks.broadcast_object("the lock", lock)
        yield run if ranks.is_main_process() else Path(stack.enter_context(TemporaryDirectory())), notes


def opening_lines(trainer: Trainer, run: Path, start: int, resumed: Path | None) -> list[str]:
    """What a run prints before its first iteration."""
    config = trainer.config
    lines = [f"{config.task}, {config.algorithm}, seats: {config.seats}; writes to {run}"]
    lines += [describe(trainer) + (f"; resumed at iteration {start}" if resumed else "")]
    lines += compile_lines(trainer)
    lines += [
        f"{type(policy.model).__name__} is decoded without a cache, every token from its whole prefix: slow"
        for policy in trainer.policies.values()
        if isinstance(policy, CausalLMPolicy) and not policy.caches
    ][:1]
    return lines + list(data_of(trainer)["left_out"])


def compile_lines(trainer: Trainer) -> list[str]:
    """One line where blocks are compiled, or would be if the machine lacked nothing."""
    policy = next(iter(trainer.policies.values()))
    if trainer.config.policy.compile == "yes":
        return ["learning and scoring use compiled blocks (--policy.compile no does without)"]
    lacks = compiled_blocks.missing(policy.device) if compiled_blocks.worthwhile(policy) else None
    return [] if lacks is None else [f"blocks are not compiled (policy.compile): this machine lacks {lacks}"]


def memory_warnings(trainer: Trainer) -> list[str]:
    """A warning if the iterations of this run will not fit memory, else nothing."""
    game, cap = trainer.game, trainer.config.max_response[1]
    longest = max(view.max_prompt(game.task.max_query, cap) for view in game.views) + cap
    needed = memory_estimate.of_run(trainer.config, trainer.policies, longest)
    warning = memory_estimate.warning(needed, free_bytes(next(iter(trainer.policies.values())).device))
    return [] if warning is None else [warning]


def export_policies(trainer: Trainer, run: Path, start: int, *, say: Callable[[str], None]) -> None:
    """Export the policies of the iteration that the settings choose, and their average if it is asked for.

    RuntimeError, once they are written, if an iteration since `start` has no metrics.
    """
    iteration, comparison = choose_export(trainer, run)
    lines = [] if comparison is None else [comparison]
    with trainer.state.unsharded():
        lines += ranks.broadcast_object("the policies", lambda: export(trainer, run, iteration=iteration))
    if trainer.config.export_average:
        lines += export_average(trainer, run, iteration=iteration)
    for line in lines:
        say(line)
    ranks.broadcast_object("the end", lambda: check_complete(run, trainer.config.iterations, start=start))


def describe(trainer: Trainer) -> str:
    """One line on the policies: kind, number, size, precision, device."""
    policy = next(iter(trainer.policies.values()))
    weights = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    model = getattr(policy.reference, "model", policy.reference)  # a backbone is no submodule
    halved = torch.bfloat16 in {parameter.dtype for parameter in model.parameters()}
    stored = ", frozen linear layers bfloat16" if halved else ""
    shared = f", layers shared out among {ranks.count()} processes" if policy.is_sharded else ""
    return (
        f"{len(trainer.policies)} {trainer.config.policy.kind} policies on {policy.device}, {weights:,} "
        f"trainable weights each, compute dtype {policy.precision}, weights float32{stored}{shared}"
    )
