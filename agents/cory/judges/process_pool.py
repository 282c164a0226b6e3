"""A few processes in which functions of the user run, each of which can be stopped at any time.

Every process leads a session and a process group of its own; what goes on too long, takes too much memory or
starts too many processes is killed with its group. A guard against accidents and against text that breaks a
function; no sandbox against malice.
"""

import json
import os
import pickle
import queue
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import Parameter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from cory_env.grading.reward_functions import Signature

Source = tuple[str, str]
"""What a process is told to call: a kind, and the name of it, as `cory.judges.worker.load` takes them."""

START = 120.0
"""Seconds in which a process must have imported its function."""

WATCH = 0.1
"""Seconds between looks at what a call that goes on has started."""

MOST_PROCESSES = 64
"""Processes that a function may have at once."""


class Call(NamedTuple):
    """One call of a function, with the number of scores it owes."""

    source: Source
    positional: list[Any]
    named: dict[str, Any]
    owed: int


class LostError(Exception):
    """A process that had to be given up; the message says why."""


class Worker:
    """One process."""

    def __init__(self, memory_mb: int, seconds: float) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a stopped process must not stop us
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds) + 1, 0))
        paths = [path or os.getcwd() for path in (*sys.path, "")]
        one = {"OPENBLAS_NUM_THREADS": "1"}  # numpy reserves memory per thread, past the limit on many cores
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cory.judges.worker", str(theirs.fileno()), str(memory_mb)],
                env={**one, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.link = Connection(ours.detach())
        self.memory_mb, self.seconds = memory_mb, seconds
        self.loaded: set[Source] = set()

    def load(self, source: Source) -> Signature:
        """Have the function imported; ValueError with its fault where that is not possible."""
        try:
            told = self._ask({"source": source}, START)
        except LostError as error:
            told = {"error": f"cannot be imported (its process {error}); give it judge.memory-mb, or mend it"}
        if "error" in told:
            raise ValueError(told["error"])
        self.loaded.add(source)
        bare = Parameter.empty
        return Signature.of(
            Parameter(name, getattr(Parameter, kind), default=None if has_default else bare)
            for name, kind, has_default in told["parameters"]
        )

    def call(self, call: Call) -> list[float | str] | str:
        """Scores, each a number or why it is none, or why there are none at all. LostError if the
        process cannot be used again."""
        if call.source not in self.loaded:
            self.load(call.source)
        told = self._ask(call._asdict(), self.seconds)
        if told.get("spent"):  # memory ran out: what else failed in there nobody knows
            raise LostError(f"ran out of {self.memory_mb} MB: {told['error']}")
        return told["scores"] if "scores" in told else str(told["error"])

    def _ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        try:
            self.link.send_bytes(pickle.dumps({**job, "seconds": seconds}))
            while not self.link.poll(min(WATCH, max(0.0, deadline - time.monotonic()))):
                self._watch(deadline, seconds)
            told: dict[str, Any] = json.loads(self.link.recv_bytes(2**24))
        except (EOFError, OSError, ValueError) as error:
            raise LostError(self._death(within=1.0) or f"broke off ({type(error).__name__})") from error
        return told

    def _watch(self, deadline: float, seconds: float) -> None:
        if why := self._death():
            raise LostError(why)
        if time.monotonic() >= deadline:
            raise LostError(f"took more than {seconds:g} s")
        members = session(self.process.pid)
        if len(members) > MOST_PROCESSES:
            raise LostError(f"started more than {MOST_PROCESSES} processes")
        if 0 < self.memory_mb < (held := sum(map(megabytes, members))):
            raise LostError(f"held {held:.0f} MB in {len(members)} processes, more than {self.memory_mb}")

    def _death(self, *, within: float = 0.0) -> str:
        """How the process ended or does `within` seconds; empty while it runs."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            return ""
        signalled = f"died of signal {-code} ({signal.strsignal(-code)})" if code < 0 else ""
        return signalled or f"ended with exit code {code}"

    def kill(self) -> None:
        """End the process and everything in its group and session."""
        left = set(session(self.process.pid)) - {self.process.pid}
        for kill, pid in ((os.killpg, self.process.pid), *((os.kill, pid) for pid in left)):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        self.process.wait()
        self.link.close()


class Pool:
    """At most `workers` processes, begun when needed. They end with `close`, with this object, or with us."""

    def __init__(self, *, workers: int, seconds: float, memory_mb: int) -> None:
        self.workers, self.seconds, self.memory_mb = workers, seconds, memory_mb
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._all: set[Worker] = set()
        weakref.finalize(self, _kill_all, self._all)

    def close(self) -> None:
        """Kill every process; what is called next begins new ones."""
        while not self._idle.empty():
            self._idle.get_nowait()
        _kill_all(self._all)

    def load(self, source: Source) -> Signature:
        """What the function takes; ValueError with its fault where it cannot be imported."""
        worker = self._take()
        try:
            signature = worker.load(source)
        except BaseException:
            self._drop(worker)
            raise
        self._idle.put(worker)
        return signature

    def call(self, call: Call) -> list[float | str] | str:
        """As `Worker.call`, in a process of ours; one that is lost costs no more than this answer."""
        worker = self._take()
        try:
            told = worker.call(call)
        except LostError as why:
            self._drop(worker)
            return str(why)
        except BaseException:
            self._drop(worker)
            raise
        self._idle.put(worker)
        return told

    def each(self, calls: Iterable[Call]) -> Generator[list[float | str] | str, None, None]:
        """The same for several calls at once, in their order. Left early, what has not begun never does."""
        threads = ThreadPoolExecutor(self.workers)
        try:
            yield from threads.map(self.call, calls)
        finally:
            threads.shutdown(cancel_futures=True)

    def _take(self) -> Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            worker = Worker(self.memory_mb, self.seconds)
            self._all.add(worker)
            return worker

    def _drop(self, worker: Worker) -> None:
        self._all.discard(worker)
        worker.kill()


def _kill_all(workers: set[Worker]) -> None:
    while workers:
        workers.pop().kill()


def session(leader: int) -> list[int]:
    """The processes in the session of `leader`; none where there is no /proc."""
    members = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = file.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(told[3]) == leader:
            members.append(int(file.parent.name))
    return members


def megabytes(pid: int) -> float:
    """Memory that a process holds, its share of what it has in common with others; 0 where it is not told."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    lines = (line.split() for line in told.splitlines())
    return next((int(words[1]) / 1024 for words in lines if words[0] == "Pss:"), 0.0)
