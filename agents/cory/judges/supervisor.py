"""Worker process in which user functions run and which can be killed at any time.

A call that takes too long ends with its process and what it has started. This protects against accidents and
against text that breaks a function; it is no sandbox against malicious code.
"""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import Parameter
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from cory_env.grading.reward_functions import Signature

Source = tuple[str, str]
"""The kind and the name of a function, arguments of `cory.judges.worker.load`."""

Outcome = list[float | str] | str
"""Scores, each a number or the reason why it is missing; or the reason why all are missing."""

IMPORT_TIMEOUT = 120.0
"""Seconds that a process may take to start and import a function."""


class Call(NamedTuple):
    """One call of a function."""

    source: Source
    positional: list[Any]
    named: dict[str, Any]
    n_scores: int
    """Number of scores it must return."""


class Loaded(NamedTuple):
    """What is known of a function that a worker has imported."""

    signature: Signature
    correct_from: float | None
    """The function's attribute of that name: the score from which a response is correct."""
    team_only: str
    """The function's attribute of that name: why it scores no response alone."""


class WorkerError(Exception):
    """A worker process has failed and cannot be used again; the message is the reason."""


class Worker:
    """One worker process, which leads a process group."""

    def __init__(self, memory_mb: int, seconds: float) -> None:
        self.memory_mb, self.seconds = memory_mb, seconds
        self.loaded: set[Source] = set()
        paths = [path or os.getcwd() for path in (*sys.path, "")]
        one_thread = {"OPENBLAS_NUM_THREADS": "1"}  # it reserves memory for each thread
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cory.judges.worker", str(theirs.fileno()), str(memory_mb)],
                env={**one_thread, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.link = Connection(ours.detach())

    def load(self, source: Source, log: str | None) -> Loaded:
        """Import the function; ValueError if it cannot be imported."""
        try:
            reply = self._request({"source": source, "log": log}, IMPORT_TIMEOUT)
        except WorkerError as error:
            reply = {
                "error": f"cannot be imported (its process {error}); fix it, or give it more judge.memory-mb"
            }
        if "error" in reply:
            raise ValueError(reply["error"])
        self.loaded.add(source)
        required = Parameter.empty
        signature = Signature.of(
            Parameter(name, getattr(Parameter, kind), default=None if has_default else required)
            for name, kind, has_default in reply["parameters"]
        )
        return Loaded(signature, reply["correct_from"], reply["team_only"])

    def call(self, call: Call, log: str | None) -> Outcome:
        """Call a function; WorkerError if the process cannot be used again."""
        if call.source not in self.loaded:
            self.load(call.source, log)
        reply = self._request({**call._asdict(), "log": log}, self.seconds)
        if reply.get("out_of_memory"):  # the state of the process is then unknown
            raise WorkerError(f"ran out of {self.memory_mb} MB: {reply['error']}")
        return reply["scores"] if "scores" in reply else str(reply["error"])

    def _request(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a job and wait for the reply, at most `seconds`."""
        try:
            self.link.send_bytes(pickle.dumps({**job, "seconds": seconds}))
            if not self.link.poll(seconds):
                raise WorkerError(f"took more than {seconds:g} s")
            reply: dict[str, Any] = json.loads(self.link.recv_bytes(2**24))
        except (EOFError, OSError, ValueError) as error:
            raise WorkerError(self._ending(error)) from error
        return reply

    def _ending(self, error: Exception) -> str:
        """How the process has ended whose connection failed with `error`."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"closed its connection ({type(error).__name__})"
        if code < 0:
            return f"died of signal {-code} ({signal.strsignal(-code)})"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """Kill the process and everything in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.link.close()


class Supervisor:
    """Runs user functions in one worker process, which it starts when needed and kills when it fails.

    The process ends with `close`, with this object, or with this process.
    """

    def __init__(self, *, seconds: float, memory_mb: int) -> None:
        self.seconds, self.memory_mb = seconds, memory_mb
        self.log: str | None = None
        """The file to which functions print, once there is one."""
        self.workers: list[Worker] = []
        """The one that runs, if one does."""
        weakref.finalize(self, _kill_all, self.workers)

    def close(self) -> None:
        """Kill the process; the next call starts a new one."""
        _kill_all(self.workers)

    def load(self, source: Source) -> Loaded:
        """Import a function; ValueError if it cannot be imported."""
        with self._worker() as worker:
            return worker.load(source, self.log)

    def call(self, call: Call) -> Outcome:
        """Call a function; if the process is lost, return the reason."""
        try:
            with self._worker() as worker:
                return worker.call(call, self.log)
        except WorkerError as reason:
            return str(reason)

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """The worker; it is killed if the block raises anything."""
        if not self.workers:
            self.workers.append(Worker(self.memory_mb, self.seconds))
        try:
            yield self.workers[0]
        except BaseException:
            self.close()
            raise


def _kill_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().kill()
