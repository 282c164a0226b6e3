"""A training run from start to end: directory, progress, iterations, report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cory.config.schema import Config
from cory.judges.weighted_sum import closing
from cory.policies.causal_lm import CausalLMPolicy
from cory.report.page import write_report
from cory.runtime import cpu
from cory.runtime.memory import free_bytes
from cory.runtime.signals import Signals
from cory.tracking.progress import RunProgress
from cory.tracking.tracker import Tracker
from cory.training import checkpoint, memory_estimate
from cory.training.factory import silence_transformers
from cory.training.loop import Loop, documents
from cory.training.resume import check_complete, locked, never_started
from cory.training.run_directory import (
    begin,
    check_unoccupied,
    choose_export,
    data_of,
    export,
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
    trainer: Trainer | None = None,
    callbacks: Sequence[object] = (),
    report: bool = True,
) -> Path:
    """Train by `config` in `run`, from the start or from its newest checkpoint; the path of the report.

    A `trainer` that is given is used instead of a new one. `callbacks`: see `cory.training.loop.Callback`.
    Without `report` no page is drawn. Raises `Stopped` after a signal; its notes say how to resume.
    """
    cpu.configure_runtime(threads=config.threads, matmul=config.matmul)
    silence_transformers()
    found = checkpoint.finished(run)
    resumed, skipped = resumable(config, run, resume=resume)
    if resumed is None and not (resume == "auto" and never_started(run)):
        check_unoccupied(run, overwrite=overwrite)
    trainer = trainer or Trainer(config)  # bad settings are refused before anything is written
    run.mkdir(parents=True, exist_ok=True)
    with locked(run), closing(trainer.task):
        if checkpoint.finished(run) != found:
            raise ValueError(f"another process has just trained in {run}; start this one again")
        start = begin(trainer, run) if resumed is None else restore(trainer, run, resumed)
        texts = [(run / name).read_text(encoding="utf-8") for name in ("config.yaml", "environment.json")]
        with RunProgress(start=start, iterations=config.iterations) as progress:
            for line in opening_lines(trainer, start, resumed, skipped):
                progress.say(line)
            with (
                Signals(grace=config.grace) as signals,
                Tracker(run, say=progress.say) as tracker,
            ):
                loop = Loop(
                    trainer,
                    run,
                    tracker,
                    signals,
                    say=progress.say,
                    documents=documents(texts[0], texts[1], seed=config.seed),
                    callbacks=callbacks,
                )
                loop.go(start, on_progress=progress.update)
        check_complete(run, config.iterations)
        iteration, comparison = choose_export(trainer, run)
        if comparison is not None:
            progress.say(comparison)
        export(trainer, run, iteration=iteration)
        return write_report(run) if report else run / "report.html"


def opening_lines(trainer: Trainer, start: int, resumed: Path | None, skipped: Sequence[str]) -> list[str]:
    """What a run prints before its first iteration."""
    lines = [f"skipped: {reason}" for reason in skipped]
    lines.append(describe(trainer) + (f"; resumed at iteration {start}" if resumed else ""))
    policy = next(iter(trainer.policies.values()))
    if isinstance(policy, CausalLMPolicy) and policy.cpu_kernels is not None:
        lines.append(f"CPU kernels (--policy.kernels plain does without): {policy.cpu_kernels.describe()}")
    if (warning := memory_warning(trainer)) is not None:
        lines.append(warning)
    return lines + list(data_of(trainer)["left_out"])


def memory_warning(trainer: Trainer) -> str | None:
    """A warning if the iterations of this run will not fit memory, else None."""
    game, cap = trainer.game, trainer.config.max_response[1]
    longest = max(view.max_prompt(game.task.max_query, cap) for view in game.views) + cap
    needed = memory_estimate.of_run(trainer.config, trainer.policies, longest)
    return memory_estimate.warning(needed, free_bytes(next(iter(trainer.policies.values())).device))


def describe(trainer: Trainer) -> str:
    """One line on the policies: kind, number, size, precision, device."""
    policy = next(iter(trainer.policies.values()))
    weights = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    return (
        f"{len(trainer.policies)} {trainer.config.policy.kind} policies on {policy.device}, {weights:,} "
        f"trainable weights each, compute dtype {policy.precision}, weights float32"
    )
