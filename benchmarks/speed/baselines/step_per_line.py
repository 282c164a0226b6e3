"""A trainer of TRL as a process of `throughput`: a job and then lines on standard input, a reply to each."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.speed.process_memory import resident

Reply = Callable[[dict[str, Any]], None]


class StepPerLine(TrainerCallback):
    """Wait for a line before every iteration and reply to it afterwards; exit after the last line."""

    def __init__(
        self, reply: Reply, idle: int, counts: dict[str, int], *, samples: tuple[Any, str], steps: int = 1
    ) -> None:
        """`counts` are the tokens and samples of an iteration, part of every reply.

        `samples` names the function that samples responses, whose time is reported; an iteration has `steps`
        optimiser steps.
        """
        self.reply, self.idle, self.counts, self.steps = reply, idle, counts, steps
        self.sampling, self.taken = 0.0, 0
        owner, name = samples
        untimed = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            responses = untimed(*args, **kwargs)
            self.sampling += perf_counter() - start
            return responses

        setattr(owner, name, timed)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        names = ("trl", "transformers", "torch", "accelerate")
        versions = {name: version(name) for name in names}
        self.wait({"threads": torch.get_num_threads(), "versions": versions})

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.taken += 1
        if self.taken % self.steps:
            return
        spent = {"seconds": perf_counter() - self.start, "cpu_seconds": process_time() - self.cpu_start}
        memory = {"peak_bytes": resident("VmHWM"), "idle_bytes": self.idle}
        self.wait({**spent, "phases": {"sample": self.sampling}, **self.counts, **memory})

    def wait(self, result: dict[str, Any]) -> None:
        """Reply with `result` and wait for the next line."""
        self.reply(result)
        if not sys.stdin.readline():
            os._exit(0)
        self.sampling, self.start, self.cpu_start = 0.0, perf_counter(), process_time()


def serve(train: Callable[[dict[str, Any], Reply], None]) -> None:
    """Read the job and train by it; what the trainer prints goes to standard error."""
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        train(
            json.loads(sys.stdin.readline()), lambda result: print(json.dumps(result), file=out, flush=True)
        )
