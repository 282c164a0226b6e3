"""The iterations of a run: checkpoints, evaluations, logging and alerts between them."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from cory.batch import Batch, columns
from cory.config.schema import Config
from cory.distributed import ranks
from cory.evaluation.records import best_of
from cory.judges import weighted_sum
from cory.runtime import signals
from cory.runtime.memory import NoSmallerPassError
from cory.runtime.signals import Stopped
from cory.tracking import alerts
from cory.tracking.progress import EVALUATED, TRAINING
from cory.tracking.tracker import SAMPLES, Tracker, read
from cory.training import checkpoint, metrics
from cory.training.held_out import HeldOut, validation_count
from cory.training.trainer import Trainer

LEAST_VALIDATION = 16
"""Validation queries below which no checkpoint is chosen: the differences would be chance."""

SAVE_SECONDS = 600.0
"""Seconds after which a checkpoint is written at the next iteration, whatever its number."""

Say = Callable[[str], None]
OnProgress = Callable[[str, Mapping[str, float]], None]


class Loop:
    """Runs a trainer in a run directory."""

    def __init__(
        self,
        trainer: Trainer,
        run: Path,
        tracker: Tracker,
        *,
        say: Say,
        callbacks: Sequence[object] = (),
        validates: bool = True,
    ) -> None:
        """`say` prints a line for the user.

        Without `validates` evaluations leave the validation split out, and there is no best checkpoint.
        """
        self.trainer, self.run, self.tracker, self.say = trainer, run, tracker, say
        self.config, self.judge = trainer.config, weighted_sum.of_task(trainer.task)
        self.callbacks, self.validates = callbacks, validates
        rows = ranks.on_main_process(read)(run)
        self.rows: list[Mapping[str, float]] = [row for row in rows if "time/update/seconds" in row]
        self.warned: set[str] = set()
        self.held_out = HeldOut(trainer)
        self.memory = trainer.state.memory.state()
        if trainer.pool is not None:
            trainer.pool.run = run
        self.saving_seconds = 0.0
        self.saved_at = time.monotonic()

    def run_iterations(self, start: int, *, on_progress: OnProgress) -> None:
        """Run the iterations from `start` and the last evaluation.

        `on_progress` receives the phase and, after an iteration, its metrics. `Stopped`, the ValueError of a
        judge that failed too often and the OSError of a full disk carry a note that says how to resume.
        """
        for iteration in range(start, self.config.iterations + 1):
            self.trainer.learning = False
            try:
                self.save_and_evaluate(iteration, on_progress)
                if iteration < self.config.iterations:
                    on_progress(TRAINING, {})
                    row = self.trainer.iterate(iteration, on_phase=lambda phase: on_progress(phase, {}))
                    on_progress(TRAINING, self.log(iteration, row))
                self.note_memory()
                failed = ranks.gather_object("failures", self.judge.failures())
                self.show_failures(iteration, list(chain.from_iterable(failed)))
            except (Stopped, ValueError) as error:
                self.save_on_exit(iteration, error)
                raise
            except OSError as error:
                error.add_note(self.how_to_resume())
                raise
            except ArithmeticError as error:
                raise type(error)(f"iteration {iteration}: {error}{self.dump(iteration)}") from error
            except (MemoryError, RuntimeError) as error:
                raise self.explain_out_of_memory(iteration, error) from error
            finally:
                self.show_failures(iteration, self.judge.failures())

    def note_memory(self) -> None:
        """Print the sizes of passes once they have changed."""
        if (now := self.trainer.state.memory.state()) != self.memory:
            self.memory = now
            sizes = ", ".join(f"{size / 1e6:,.1f} MB for {part}" for part, size in now.items())
            self.say(f"warning: memory ran out; passes are smaller from now on: {sizes}")

    @ranks.on_main_process
    def saves(self, iteration: int) -> bool:
        """Whether a checkpoint is due: by number, at the end, or by the clock."""
        every = self.config.checkpoint_every
        if every and (iteration % every == 0 or iteration == self.config.iterations):
            return True
        return bool(every) and time.monotonic() - self.saved_at > SAVE_SECONDS

    def save_and_evaluate(self, iteration: int, on_progress: OnProgress) -> None:
        """Save and evaluate if due at the start of `iteration`."""
        ranks.gather_results("a signal", signals.check)
        if self.saves(iteration):
            self.save(iteration)
        if evaluates(self.config, iteration):
            self.evaluate(iteration, on_progress)
        exchanged = len(self.trainer.policies) > 1 and self.trainer.exchanged(iteration)
        if iteration < self.config.iterations and exchanged:
            self.call("on_exchange", iteration, self.trainer.seating(iteration))

    def log(self, iteration: int, row: dict[str, float]) -> dict[str, float]:
        """Log the metrics of an iteration and check them for alerts; those of rank 0: the seconds differ."""
        row = ranks.gather_object("metrics", row)[0]
        row["time/save/seconds"], self.saving_seconds = self.saving_seconds, 0.0
        self.tracker.log(iteration, row)
        self.rows.append(row)
        ends, example = self.config.responses_end, self.trainer.example
        missed = iteration + 1 - len(self.rows)
        self.warn(alerts.training(self.rows, missed=missed, ends=ends, example=example))
        self.call("on_iteration", iteration, row)
        return row

    def evaluate(self, iteration: int, on_progress: OnProgress) -> None:
        """Evaluate policies standalone and as a team, log sample games, keep the best checkpoint so far."""
        start = time.perf_counter()

        def on_policy(name: str) -> None:
            on_progress(f"evaluating {name}", {})

        if iteration:  # a run that resumed logged what its judge said of the references at iteration 0
            self.held_out.evaluate_references(on_policy)
            self.judge.metrics()
            self.judge.failures()
        responses = self.held_out.evaluate(on_policy)
        kl_coef = self.config.kl.coef
        row = metrics.evaluation_metrics(responses, kl_coef=kl_coef)
        if self.config.evaluation.team or not responses:
            on_progress("evaluating the team", {})
            row |= metrics.team_metrics(self.held_out.play_as_team(iteration), kl_coef=kl_coef)
        if self.validates:
            validation = self.held_out.validate(lambda name: on_progress(f"validating {name}", {}))
            row |= metrics.validation_metrics(validation, kl_coef=kl_coef)
        row["time/evaluate/seconds"] = time.perf_counter() - start
        row |= self.judge.metrics(prefix="evaluation_")
        sampled = partial(self.held_out.sample_rows, iteration, responses)
        samples = ranks.gather_results("samples", sampled)[0]
        self.judge.metrics()  # those of the samples, which every rank plays, are none of the next iteration
        self.tracker.log(iteration, row)
        self.tracker.samples(iteration, samples)
        queries = len(next(iter(responses.values())).queries) if responses else 0
        self.warn(alerts.evaluation(row, queries=queries))
        if self.config.checkpoint_every:
            self.keep_best(iteration, row)
        self.call("on_evaluate", iteration, row)
        on_progress(EVALUATED, row)

    def keep_best(self, iteration: int, row: Mapping[str, float]) -> None:
        """Keep a checkpoint of the highest combined reward on the validation split.

        It is averaged over the policies. Without validation, or with fewer than `LEAST_VALIDATION` queries
        of it, there is none: the test split is for reports only.
        """
        keys = [f"validation/{name}/combined_reward" for name in self.trainer.policies]
        scores = [row[key] for key in keys if key in row]
        if validation_count(self.trainer) < LEAST_VALIDATION or not scores:
            return
        score, best = sum(scores) / len(scores), ranks.on_main_process(best_of)(self.run)
        if best is None or score > best["score"]:
            self.save(iteration)
            ranks.on_main_process(checkpoint.write_best)(self.run, iteration, score)

    def save(self, iteration: int) -> None:
        """Save the state at the start of `iteration`; older checkpoints go once it is whole."""
        start = time.perf_counter()
        self.trainer.state.check_ranks(iteration)
        with self.trainer.state.unsharded():
            folder = self.write_checkpoint(iteration)
        self.saved_at = time.monotonic()
        self.saving_seconds += time.perf_counter() - start
        self.call("on_save", iteration, folder)

    @ranks.on_main_process
    def write_checkpoint(self, iteration: int) -> Path:
        """Write the checkpoint and remove old ones; its folder."""
        self.tracker.flush()  # a run that resumes here writes no earlier line again
        folder = self.trainer.save(self.run, iteration, documents=documents(self.run, self.config))
        kept = checkpoint.finished(self.run)[-self.config.keep_checkpoints :]  # any may have to be resumed
        pool, starts = self.trainer.pool, map(checkpoint.iteration_of, kept)
        drawn = {at for start in starts for at in pool.members(start)} if pool else ()
        for aside in checkpoint.keep_last(self.run, self.config.keep_checkpoints, also=drawn):
            self.say(f"warning: an old checkpoint held other files or was damaged; they are kept in {aside}")
        return folder

    @ranks.on_main_process
    def call(self, hook: str, *arguments: object) -> None:
        """Call a hook of all callbacks that have it."""
        for callback in self.callbacks:
            if (function := getattr(callback, hook, None)) is not None:
                function(self.trainer, *arguments)

    def show_failures(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log responses that a judge failed on among the samples; print the first of each function."""
        self.tracker.samples(iteration, rows)
        for row in rows:
            text = f"judge {row['judge']!r}: {row['failure']}, for the response {row['response'][:120]!r}"
            if row["judge"] not in self.warned:
                self.warned.add(row["judge"])
                self.say(f"warning: {text}; more are in {SAMPLES}")

    def warn(self, warnings: Mapping[str, str]) -> None:
        """Print each warning once; raise it with `alerts.stop`."""
        for name, text in warnings.items():
            if name not in self.warned:
                self.warned.add(name)
                if self.config.alerts.stop:
                    raise ArithmeticError(text)
                self.say(f"warning: {text}")

    def save_on_exit(self, iteration: int, error: Exception) -> None:
        """Save the state at the start of the iteration unless an update has begun; note where to resume."""
        if not any(ranks.gather_object("the last checkpoint", self.trainer.learning)):
            try:
                self.save(iteration)
            except OSError as full:
                self.say(f"warning: no checkpoint of iteration {iteration} ({full})")
        error.add_note(self.how_to_resume())

    def how_to_resume(self) -> str:
        """The newest checkpoint and the command to resume from it, or how to start again without one."""
        if not (finished := checkpoint.finished(self.run)):
            return f"{self.run} has no checkpoint; to start again, give the same command with --overwrite"
        return (
            f"its newest checkpoint is {finished[-1]}; go on with: cory train --run {self.run} --resume must"
        )

    def dump(self, iteration: int) -> str:
        """Write the batches of a diverged iteration into the run directory; a clause that says where."""
        batches = self.trainer.batches
        tensors = {
            f"{seat}.{name}": getattr(batch, name)
            for seat, batch in batches.items()
            for name in columns(Batch)
        }
        if not tensors or not ranks.is_main_process():
            return ""
        path = self.run / f"diverged-{iteration:06d}.safetensors"
        checkpoint.save_tensors(path, tensors)
        return f"; its batches are in {path}"

    def explain_out_of_memory(self, iteration: int, error: Exception) -> Exception:
        """The error itself or, if memory ran out, one that names sizes and settings that help."""
        words = ("out of memory", "allocate memory", "DefaultCPUAllocator")
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(
            word in str(error) for word in words
        ):
            return error
        if isinstance(error, NoSmallerPassError):
            return NoSmallerPassError(f"iteration {iteration}: {error}")
        config, tokenizer = self.config, self.trainer.task.tokenizer
        return MemoryError(
            f"iteration {iteration}: memory ran out with {config.batch} games, responses of up to "
            f"{config.max_response[1]} tokens and {tokenizer.vocab_size} ids "
            f"({str(error).splitlines()[0][:120]}); raise learner.microbatches (now "
            f"{config.learner.microbatches}), set policy.gradient_checkpointing or policy.kind lora_team, "
            "or lower batch or memory"
        )


def evaluates(config: Config, iteration: int) -> bool:
    """Whether `iteration` starts with an evaluation: the first, the last, and every so many."""
    every = config.evaluation.every
    return iteration in (0, config.iterations) or bool(every and iteration % every == 0)


def documents(run: Path, config: Config) -> dict[str, Any]:
    """Texts that every checkpoint holds: settings, environment, and the random seed with its scheme."""
    texts = {name: (run / name).read_text(encoding="utf-8") for name in ("config.yaml", "environment.json")}
    seed = {"seed": config.seed, "scheme": "counter-based: see cory/rng.py"}
    return texts | {"rng.json": json.dumps(seed, indent=1)}
