"""A training run from start to end: directory, progress, iterations, report."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from cory.config.schema import Config
from cory.config.values import flat
from cory.distributed import ranks
from cory.judges import weighted_sum
from cory.policies.causal_lm import CausalLMPolicy
from cory.report.page import write_report
from cory.report.summary import headline
from cory.runtime.signals import Signals
from cory.tracking import external
from cory.tracking.progress import RunProgress
from cory.tracking.tracker import Tracker
from cory.training.factory import configure_runtime
from cory.training.loop import Loop
from cory.training.overwriting import locked
from cory.training.run_directory import (
    Resume,
    begin,
    check_complete,
    choose_export,
    data_of,
    examine,
    export,
    export_average,
    go_back,
    with_measured,
)
from cory.training.trainer import Trainer
from cory_env.nearest import did_you_mean
from cory_env.registry import check_call

HOOKS = {"on_iteration": "metrics", "on_evaluate": "metrics", "on_exchange": "seating", "on_save": "folder"}
"""Methods that a callback may have, and what each is called with after the trainer and the iteration."""


def check_callbacks(callbacks: Sequence[object]) -> None:
    """Raise ValueError for what is no list of objects, and for a hook of another name or signature."""
    if not isinstance(callbacks, list | tuple):
        raise ValueError(f"callbacks is {callbacks!r:.80}; give a list of objects")
    for callback in callbacks:
        hooks = [name for name in dir(callback) if name.startswith("on_")]
        if unknown := [name for name in hooks if name not in HOOKS]:
            hint = did_you_mean(unknown[0], HOOKS)
            raise ValueError(f"a callback has {unknown[0]!r}, which is never called{hint}")
        if isinstance(callback, type):
            raise ValueError(f"the callback {callback!r:.80} is a class; give an object of it")
        if callable(callback) and not hooks:
            methods = ", ".join(HOOKS)
            raise ValueError(
                f"the callback {callback!r:.80} is a function and is never called; give an object with any "
                f"of the methods {methods}"
            )
        for name in hooks:
            check_call(f"{name} of a callback", getattr(callback, name), "trainer", "iteration", HOOKS[name])


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
    quiet: bool = False,
    about: Sequence[str] = (),
) -> tuple[Path, Trainer]:
    """Train by `config` in `run`, from the start or from its newest checkpoint.

    Returns the path of the report, and the trainer after the last iteration.

    `make_trainer` gets the settings, with what a resumed run measured. `callbacks`: see docs/python.md.
    Without `report` no page is drawn; without `validate` no best checkpoint is kept, unless it is exported.
    With `quiet` only warnings are printed; `about` are lines that a new run begins with. Raises `Stopped`
    after a signal; its notes say how to resume.
    """
    check_callbacks(callbacks)
    configure_runtime(config)
    run, is_main = join_ranks(config, run), ranks.is_main_process()
    places = config.log_to if is_main else ()
    external.check_installed(places)
    with ExitStack() as stack:
        ranks.on_main_process(stack.enter_context)(locked(run))
        plan = examine(config, run, resume=resume, overwrite=overwrite)
        if plan.resumed is not None:
            config = with_measured(config, plan.resumed)
        trainer = make_trainer(config)  # bad settings are refused before anything is written
        stack.enter_context(weighted_sum.closing(trainer.task))
        if plan.resumed is None:
            start, notes = 0, begin(trainer, run, overwrites=plan.overwrites)
        else:
            start = int(trainer.load(plan.resumed)["iteration"])
            lines = go_back(trainer, run, plan.resumed, start)
            notes = [f"warning: {line}" for line in lines]
        weighted_sum.of_task(trainer.task).log_to(run / "judge.log")
        progress = stack.enter_context(
            RunProgress(start=start, iterations=config.iterations, quiet=quiet or not is_main)
        )
        warn = progress.warn if is_main else lambda text: None
        for line in (*(about if plan.resumed is None else ()), *opening_lines(trainer, run, start)):
            progress.say(line)
        for warning in (*notes, *(f"skipped: {why}" for why in plan.skipped)):
            warn(warning)
        folder = run if is_main else Path(stack.enter_context(TemporaryDirectory()))
        trackers = external.start(places, run, flat(config), resumed=plan.resumed is not None, warn=warn)
        with Signals(), Tracker(folder, external=trackers) as tracker:
            loop = Loop(
                trainer,
                run,
                tracker,
                say=warn,
                callbacks=callbacks,
                validates=validate or config.export_best,
            )
            loop.run_iterations(start, on_progress=progress.update)
        progress.update("exporting policies", {})
        try:
            lines = export_policies(trainer, run, start)
        except OSError as error:
            error.add_note(loop.how_to_resume())
            raise
        for line in lines:
            progress.say(line)
        progress.update("drawing the report", {})
        path = ranks.on_main_process(write_report)(run) if report else run / "report.html"
        for line in headline(run) if is_main else ():
            progress.say(line)
    return path, trainer


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


def opening_lines(trainer: Trainer, run: Path, start: int) -> list[str]:
    """What a run prints before its first iteration."""
    config = trainer.config
    lines = [f"{config.task}, {config.algorithm}, seats: {config.seats}; writes to {run}"]
    lines += [describe(trainer) + (f"; resumed at iteration {start}" if start else "")]
    if config.policy.compile == "yes":
        lines.append("learning and scoring use compiled blocks (--policy.compile no does without)")
    lines += [
        f"{type(policy.model).__name__} is decoded without a cache, every token from its whole prefix: slow"
        for policy in trainer.policies.values()
        if isinstance(policy, CausalLMPolicy) and not policy.caches
    ][:1]
    return lines + list(data_of(trainer)["left_out"])


def export_policies(trainer: Trainer, run: Path, start: int) -> list[str]:
    """Export policies, and their average if there is one; lines for the user."""
    iteration, comparison = choose_export(trainer, run)
    lines = [] if comparison is None else [comparison]
    with trainer.state.unsharded():
        lines += export(trainer, run, iteration=iteration)
    if trainer.config.averages and trainer.config.policy.kind != "table":
        lines += export_average(trainer, run, iteration=iteration)
    check_complete(run, trainer.config.iterations, start=start)
    return lines


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
