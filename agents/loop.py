"""The iterations of a run, one after another: what is saved, evaluated, logged, warned about between them."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from agents import checkpoint, guards, readings
from agents.batch import Batch, columns
from agents.judges import panel
from agents.metrics import METRICS, SAMPLES, Tracker, read_lines
from agents.stopping import Signals, Stopped
from agents.trainer import Trainer

Say = Callable[[str], None]
Shown = Callable[[str, Mapping[str, float]], None]


class Loop:
    """A trainer at work in a run directory."""

    def __init__(
        self, trainer: Trainer, run: Path, tracker: Tracker, signals: Signals, *, say: Say,
        documents: Mapping[str, str],
    ) -> None:  # fmt: skip
        """`say` prints a line where people look; `documents`, texts by name, go into every checkpoint."""
        self.trainer, self.run, self.tracker, self.signals = trainer, run, tracker, signals
        self.config, self.say, self.documents = trainer.config, say, documents
        self.rows: list[Mapping[str, float]] = [
            row for row in read_lines(run / METRICS) if "time/update/seconds" in row
        ]
        self.warned: set[str] = set()
        self.failed_saves = 0
        self.saving_seconds = 0.0

    def go(self, start: int, *, shown: Shown) -> None:
        """Iterations `start` and on, and the last evaluation. `shown` is told what is done, and its numbers.

        `Stopped` says where the run can go on; so does the ValueError of a judge that failed too often, and
        the OSError of a disk that stays full.
        """
        for iteration in range(start, self.config.iterations + 1):
            try:
                self.between(iteration, shown)
                if iteration < self.config.iterations:
                    shown("training", {})
                    shown("training", self.iterate(iteration))
            except (Stopped, ValueError) as ended:
                self.farewell(iteration, ended)
                raise
            except OSError as full:
                full.add_note(self.where())
                raise
            except ArithmeticError as error:
                raise type(error)(f"iteration {iteration}: {error}{self.dump(iteration)}") from error
            except (MemoryError, RuntimeError) as error:
                raise self.out_of_memory(iteration, error) from error
            finally:
                self.show_failures(iteration)

    def evaluates(self, iteration: int) -> bool:
        """Before the first, after the last, and every so many iterations."""
        every = self.config.evaluation.every
        return iteration in (0, self.config.iterations) or bool(every and iteration % every == 0)

    def between(self, iteration: int, shown: Shown) -> None:
        """What is due at the start of an iteration."""
        self.signals.check()
        every = self.config.checkpoint_every
        if every and (iteration % every == 0 or iteration == self.config.iterations):
            self.save(iteration)
        if self.evaluates(iteration):
            self.evaluate(iteration, shown)

    def iterate(self, iteration: int) -> dict[str, float]:
        """One iteration; its numbers, logged and looked at."""
        numbers = self.trainer.iterate(
            iteration, interrupt=self.signals.check, interrupt_update=self.signals.check_grace
        )
        numbers["time/save/seconds"], self.saving_seconds = self.saving_seconds, 0.0
        self.tracker.log(iteration, numbers)
        self.rows.append(numbers)
        self.warn(guards.training(self.rows, self.config.guards))
        return numbers

    def evaluate(self, iteration: int, shown: Shown) -> None:
        """Every policy alone; a few held-out games to be read; the best checkpoint so far."""
        began = time.perf_counter()
        answers = self.trainer.answers(
            interrupt=self.signals.check, asked=lambda name: shown(f"evaluating {name}", {})
        )
        numbers = {"time/evaluate/seconds": time.perf_counter() - began}
        eta, threshold = self.config.kl.coef, self.config.evaluation.threshold
        policies = list(self.trainer.policies)
        numbers |= readings.of_answers(answers, policies, kl_coef=eta, threshold=threshold)
        rows = self.trainer.sample_rows(iteration, answers)
        numbers |= panel.numbers(self.trainer.task, prefix="evaluation_")
        self.tracker.log(iteration, numbers)
        self.tracker.samples(iteration, rows)
        self.warn(guards.evaluation(numbers, self.config.guards))
        if self.config.checkpoint_every:
            self.keep_best(iteration, numbers)

    def keep_best(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """A checkpoint of its own for the highest combined reward, mean over the policies."""
        scores = [numbers[f"alone/{name}/combined_reward"] for name in self.trainer.policies]
        score, best = sum(scores) / len(scores), checkpoint.read_best(self.run)
        if (best is None or score > best["score"]) and self.save(iteration):
            checkpoint.write_best(self.run, iteration, score)

    def save(self, iteration: int) -> bool:
        """A checkpoint of the state at the start of `iteration`; older ones go once it is whole.

        A disk that takes no more is survived `failed_saves` - 1 times running.
        """
        began = time.perf_counter()
        try:
            self.tracker.flush()  # a run that goes on here writes no earlier line again
            checkpoint.save(
                self.run,
                iteration,
                self.trainer.learners,
                self.trainer.state() | {"seating": dict(self.trainer.seating(iteration))},
                critic=self.trainer.critic,
                documents=self.documents,
            )
            checkpoint.keep_last(self.run, self.config.keep_checkpoints)
        except OSError as error:
            self.failed_saves += 1
            if self.failed_saves >= self.config.failed_saves:
                raise
            left = self.config.failed_saves - self.failed_saves
            self.say(f"warning: no checkpoint of iteration {iteration} ({error}); {left} more may fail")
            return False
        self.failed_saves = 0
        self.saving_seconds += time.perf_counter() - began
        return True

    def show_failures(self, iteration: int) -> None:
        """Responses that a judge failed on go among the samples; the first of a function is said too."""
        rows = panel.failures(self.trainer.task)
        self.tracker.samples(iteration, rows)
        for row in rows:
            text = f"judge {row['judge']!r}: {row['failure']}, for the response {row['response'][:120]!r}"
            if row["judge"] not in self.warned:
                self.warned.add(row["judge"])
                self.say(f"warning: {text}; more are in {SAMPLES}")

    def warn(self, told: Mapping[str, str]) -> None:
        """Say each warning once; an error where the settings ask for that."""
        for name, text in told.items():
            if name not in self.warned:
                self.warned.add(name)
                if self.config.guards.stop:
                    raise ArithmeticError(text)
                self.say(f"warning: {text}")

    def farewell(self, iteration: int, ended: Exception) -> None:
        """Save what can still be saved, and put into `ended` where the run goes on."""
        if not self.trainer.learning:
            try:
                self.save(iteration)
            except OSError as error:
                self.say(f"warning: no checkpoint of iteration {iteration} ({error})")
        ended.add_note(self.where())

    def where(self) -> str:
        """The newest checkpoint, and how to go on from there."""
        whole = checkpoint.finished(self.run)
        where = f"its newest checkpoint is {whole[-1]}" if whole else "it has no checkpoint"
        return f"{where}; go on with: cory train --run {self.run} --resume must"

    def dump(self, iteration: int) -> str:
        """Leave the batches of a sick iteration in the run directory; where they are."""
        batches = self.trainer.batches
        tensors = {
            f"{s}.{name}": getattr(batch, name) for s, batch in batches.items() for name in columns(Batch)
        }
        if not tensors:
            return ""
        path = self.run / f"sick-{iteration:06d}.safetensors"
        checkpoint.save_tensors(path, tensors)
        return f"; its batches are in {path}"

    def out_of_memory(self, iteration: int, error: Exception) -> Exception:
        """The error itself, or, where memory ran out, sizes and what helps."""
        words = ("out of memory", "allocate memory", "DefaultCPUAllocator")
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(
            word in str(error) for word in words
        ):
            return error
        config, tokenizer = self.config, self.trainer.task.tokenizer
        return MemoryError(
            f"iteration {iteration}: memory ran out with {config.batch} games, responses of up to "
            f"{config.max_response[1]} tokens and {tokenizer.vocab_size} ids "
            f"({str(error).splitlines()[0][:120]}); raise learner.microbatches (now "
            f"{config.learner.microbatches}), set policy.gradient_checkpointing or policy.kind lora_team, "
            "or lower batch"
        )


def documents(settings: str, environment: str, seed: int) -> dict[str, Any]:
    """What every checkpoint says in words: the settings, the machine, and where its chance comes from."""
    return {
        "config.yaml": settings,
        "environment.json": environment,
        "rng.json": json.dumps({"seed": seed, "scheme": "counter-based: see agents/randomness.py"}, indent=1),
    }
