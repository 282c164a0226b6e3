"""Training processes that are killed with SIGKILL at a chosen boundary, or at any moment.

A process that has imported everything forks, so that a kill and a resume take a fraction of a second.
Boundaries are what a child does to the disk, seen by an audit hook and by wrappers around the functions that
write whole files, which can also be cut short in the middle; the begin and the end of every phase of an
iteration; and every check for signals: before every token and every step.
"""

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import safetensors.torch

import cory
from cory.cli.main import main
from cory.runtime.clock import Clock
from cory.runtime.signals import Signals
from cory.tracking import tracker
from cory.training.held_out import HeldOut

SOURCES = str(Path(cory.__file__).parent)
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
"""Audit events that change a directory; `open` is one too if it opens for writing."""

STAGES = {
    "keep_last": "as old checkpoints go",
    "write_best": "as the best is named",
    "restore": "as a run resumes",
    "begin": "as a run begins",
    "export": "as policies are exported",
    "save": "inside a save",
    "_call": "as TensorBoard is written",
    "log": "in a line of metrics or samples",
    "samples": "in a line of metrics or samples",
}
"""What a process is doing to the disk, by the functions of `cory` on its stack; the first that fits."""

PHASES = {
    "exchange": "at an exchange",
    "sample": "while sampling",
    "judge": "while judging",
    "statistics": "while scoring tokens",
    "critic": "in the central critic",
    "update": "in an update",
    "evaluate": "in an evaluation",
}
"""What else it is doing, by the phases of an iteration's clock."""


class Boundaries:
    """Records the boundaries this process meets from now on; kills it at the `fatal`-th."""

    def __init__(self, fatal: int | None) -> None:
        self.fatal = fatal
        self.phase: str | None = None
        self.seen: list[tuple[str, str]] = []
        plain_tensors, plain_text = safetensors.torch.serialize_file, Path.write_text
        plain_lines, plain_sync = tracker._Lines.write, os.fsync

        def half_tensors(flat, path, *rest, **more):
            plain_tensors(flat, path, *rest, **more)
            os.truncate(path, Path(path).stat().st_size // 2)

        def tensors(flat, path, *rest, **more):
            name = Path(path).name
            self.meet(f"before {name} is written")
            self.meet(f"half of {name}", lambda: half_tensors(flat, path, *rest, **more))
            return plain_tensors(flat, path, *rest, **more)

        def text(path, data, *rest, **more):
            self.meet(f"half of {path.name}", lambda: plain_text(path, data[: len(data) // 2], *rest, **more))
            return plain_text(path, data, *rest, **more)

        def lines(at, rows):
            if rows := list(rows):
                self.meet(f"before a line of {at.path.name}")
                self.meet(f"half of a line of {at.path.name}", lambda: at.file.write(b'{"iteration": 3, "a'))
            return plain_lines(at, rows)

        def sync(handle):
            self.meet("before fsync")
            return plain_sync(handle)

        safetensors.torch.serialize_file, Path.write_text = tensors, text
        tracker._Lines.write, os.fsync = lines, sync
        sys.addaudithook(self.hook)
        self.watch_phases()

    def watch_phases(self) -> None:
        """Meet the begin and the end of every phase, and every check for signals inside."""
        plain_phase, plain_evaluate = Clock.phase, HeldOut.evaluate
        plain_check = Signals.check

        @contextmanager
        def phase(clock: Clock, name: str) -> Iterator[None]:
            with plain_phase(clock, name), self.inside(name):
                yield

        def evaluate(held_out: HeldOut, *rest):
            with self.inside("evaluate"):
                return plain_evaluate(held_out, *rest)

        def check(signals: Signals, grace: float = 0.0) -> None:
            if self.phase is not None:
                self.reach(PHASES[self.phase], "at a check for signals")
            plain_check(signals, grace)

        Clock.phase, HeldOut.evaluate, Signals.check = phase, evaluate, check

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Meet the begin and the end of a phase; phases within an evaluation are part of it."""
        if self.phase is not None:
            yield
            return
        self.phase = name
        self.reach(PHASES[name], "as it begins")
        yield
        self.reach(PHASES[name], "as it ends")
        self.phase = None

    def hook(self, event: str, args: tuple) -> None:
        """Called by the interpreter before it does what `event` says."""
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in CHANGES:
            name = "" if isinstance(args[0], int) else Path(os.fsdecode(args[0])).name
            self.meet(f"before {event.removeprefix('os.')} {name}")

    def meet(self, what: str, last: Callable[[], object] = lambda: None) -> None:
        """Reach a boundary on the disk if a stage of a run does it."""
        stage = stage_of(sys._getframe())
        if stage is not None:
            self.reach(stage, what, last)

    def reach(self, stage: str, what: str, last: Callable[[], object] = lambda: None) -> None:
        """Record a boundary; at the fatal one call `last` and die."""
        self.seen.append((stage, what))
        if len(self.seen) == self.fatal:
            last()
            os.kill(os.getpid(), signal.SIGKILL)


def stage_of(frame: FrameType | None) -> str | None:
    """The stage that the functions of `cory` on the stack belong to."""
    names = set()
    while frame is not None:
        if frame.f_code.co_filename.startswith(SOURCES):
            names.add(frame.f_code.co_name)
        frame = frame.f_back
    return next((stage for name, stage in STAGES.items() if name in names), None)


def fork(function: Callable[[], int], log: Path) -> int:
    """Fork a child that calls `function` with its output in `log`; its process id.

    The child exits with what `function` returns, or with 70 after an exception.
    """
    gc.freeze()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        sys.stdout = sys.stderr = log.open("w")
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def start(argv: Sequence[str], log: Path, *, fatal: int | None = None) -> int:
    """Fork a child that runs `cory ARGV`; its process id. Its boundaries are written beside `log`."""

    def run() -> int:
        boundaries = Boundaries(fatal)
        code = main(list(argv))
        with log.with_suffix(".json").open("w") as file:
            json.dump(boundaries.seen, file)
        return code

    return fork(run, log)


def end(child: int, *, kill_after: float | None = None) -> tuple[int, float]:
    """Wait for a child: its exit code, or minus the signal that killed it, and its seconds of CPU time.

    With `kill_after`, kill it once it has used so many seconds of CPU time.
    """
    if kill_after is not None:
        clock = ~child << 3 | 2  # clock_getcpuclockid(3) of a process on Linux
        ended = os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        while time.clock_gettime(clock) < kill_after and os.waitid(*ended) is None:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
