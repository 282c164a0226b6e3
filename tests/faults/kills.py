"""Training processes that are killed with SIGKILL at a chosen place, or at any moment.

A process that has imported everything forks, so that a death and a resume take a fraction of a second. What a
child is about to do to the disk is seen by an audit hook, and by what is put before the functions that write
whole files: they can also be cut short in the middle. Between them it can die where a phase of an iteration
begins or ends, and wherever it looks whether a signal has come: before every token and every step.
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

from cory.tracking import tracker
from cory.cli.main import main
from cory.runtime.clock import Clock
from cory.runtime.signals import Signals
from cory.training.trainer import Trainer

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
"""Audit events that change a directory; `open` is one too, where it opens for writing."""

STAGES = {
    "keep_last": "as old checkpoints go",
    "write_best": "as the best is named",
    "go_on": "as a run goes on",
    "begin": "as a run begins",
    "export": "as policies are exported",
    "save": "inside a save",
    "_add": "in a line of numbers or samples",
    "_draw": "as TensorBoard is told",
}
"""What a process is doing to the disk, by the functions of `agents` it is in; the first that fits."""

PHASES = {
    "exchange": "at an exchange",
    "sample": "while sampling",
    "judge": "while judging",
    "statistics": "while valuing what was written",
    "critic": "in the central critic",
    "update": "in an update",
    "evaluate": "in an evaluation",
}
"""What else it is doing, by what the clock of an iteration calls it."""


class Boundaries:
    """Counts what this process does from now on, names it, and dies at the `fatal`-th."""

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

        def lines(at):
            if at.waiting:
                self.meet(f"before a line of {at.path.name}")
                self.meet(f"half of a line of {at.path.name}", lambda: at.file.write(b'{"iteration": 3, "a'))
            return plain_lines(at)

        def sync(handle):
            self.meet("before fsync")
            return plain_sync(handle)

        safetensors.torch.serialize_file, Path.write_text = tensors, text
        tracker._Lines.write, os.fsync = lines, sync
        sys.addaudithook(self.hook)
        self.watch_phases()

    def watch_phases(self) -> None:
        """Meet the begin and the end of every phase, and every look at the flag of the signals inside."""
        plain_phase, plain_answers = Clock.phase, Trainer.answers
        plain_check, plain_check_grace = Signals.check, Signals.check_grace

        @contextmanager
        def phase(clock: Clock, name: str) -> Iterator[None]:
            with plain_phase(clock, name), self.inside(name):
                yield

        def answers(trainer: Trainer, **more):
            with self.inside("evaluate"):
                return plain_answers(trainer, **more)

        def look(plain: Callable[[Signals], None]) -> Callable[[Signals], None]:
            def check(signals: Signals) -> None:
                if self.phase is not None:
                    self.reach(PHASES[self.phase], "at a look for signals")
                plain(signals)

            return check

        Clock.phase, Trainer.answers = phase, answers
        Signals.check, Signals.check_grace = look(plain_check), look(plain_check_grace)

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """A phase; those within an evaluation are part of it."""
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
        """Something done to the disk; only what a stage of a run does is a place to die at."""
        stage = stage_of(sys._getframe())
        if stage is not None:
            self.reach(stage, what, last)

    def reach(self, stage: str, what: str, last: Callable[[], object] = lambda: None) -> None:
        """A place to die at, after having done `last`."""
        self.seen.append((stage, what))
        if len(self.seen) == self.fatal:
            last()
            os.kill(os.getpid(), signal.SIGKILL)


def stage_of(frame: FrameType | None) -> str | None:
    """What the functions of `agents` on the stack are doing."""
    names = set()
    while frame is not None:
        if "/agents/" in frame.f_code.co_filename:
            names.add(frame.f_code.co_name)
        frame = frame.f_back
    return next((stage for name, stage in STAGES.items() if name in names), None)


def start(argv: Sequence[str], log: Path, *, fatal: int | None = None) -> int:
    """A child that runs `cory ARGV`; its process id. Output goes to `log`, its boundaries beside it."""
    gc.freeze()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        boundaries = Boundaries(fatal)
        code = main(list(argv))
        sys.stderr.flush()
        with log.with_suffix(".json").open("w") as file:
            json.dump(boundaries.seen, file)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def end(child: int, *, kill_after: float | None = None) -> tuple[int, float]:
    """Wait for a child: its exit code, or minus the signal that killed it, and the seconds it has worked.

    May kill it once it has worked so many; seconds of the CPU, since machines are busy at times.
    """
    if kill_after is not None:
        clock = ~child << 3 | 2  # what clock_getcpuclockid(3) makes of a process on Linux
        ended = os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        while time.clock_gettime(clock) < kill_after and os.waitid(*ended) is None:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
