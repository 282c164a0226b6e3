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
from contextlib import suppress
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


class WorkerError(Exception):
    """A worker process has failed and cannot be used again; the message is the reason."""


class Worker(NamedTuple):
    """A process that leads a process group, and what it has been asked to import."""

    process: subprocess.Popen[bytes]
    link: Connection
    loaded: set[Source]


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
        """Kill the process and everything in its group; the next call starts a new one."""
        _kill_all(self.workers)

    def load(self, source: Source) -> tuple[Signature, float | None, str]:
        """Import a function: its parameters, and its attributes `correct_from` and `team_only`.

        Those are the score from which a response is correct, and why it scores no response alone. ValueError
        if it cannot be imported.
        """
        try:
            reply = self._request({"source": source}, IMPORT_TIMEOUT)
        except WorkerError as error:
            reply = {
                "error": f"cannot be imported (its process {error}); fix it, or give it more judge.memory-mb"
            }
        if "error" in reply:
            self.close()
            raise ValueError(reply["error"])
        self.workers[0].loaded.add(source)
        required = Parameter.empty
        signature = Signature.of(
            Parameter(name, getattr(Parameter, kind), default=None if has_default else required)
            for name, kind, has_default in reply["parameters"]
        )
        return signature, reply["correct_from"], reply["team_only"]

    def call(self, source: Source, positional: list[Any], named: dict[str, Any], n_scores: int) -> Outcome:
        """Call a function, which must return `n_scores`; if the process is lost, return the reason."""
        if not self.workers or source not in self.workers[0].loaded:
            self.load(source)
        job = {"source": source, "positional": positional, "named": named, "n_scores": n_scores}
        try:
            reply = self._request(job, self.seconds)
        except WorkerError as reason:
            return str(reason)
        if reply.get("out_of_memory"):  # the state of the process is then unknown
            self.close()
            return f"ran out of {self.memory_mb} MB: {reply['error']}"
        return reply["scores"] if "scores" in reply else str(reply["error"])

    def _request(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a job and wait for the reply, at most `seconds`; without one the process is killed."""
        if not self.workers:
            self.workers.append(_started(self.memory_mb))
        link = self.workers[0].link
        try:
            link.send_bytes(pickle.dumps({**job, "seconds": seconds, "log": self.log}))
            if not link.poll(seconds):
                raise WorkerError(f"took more than {seconds:g} s")
            reply: dict[str, Any] = json.loads(link.recv_bytes(2**24))
        except (EOFError, OSError, ValueError) as error:
            reason = _ending(self.workers[0].process, error)
            self.close()
            raise WorkerError(reason) from error
        except BaseException:  # a signal too: the reply would be taken for that of the next job
            self.close()
            raise
        return reply


def _started(memory_mb: int) -> Worker:
    paths = [path or os.getcwd() for path in (*sys.path, "")]
    one_thread = {"OPENBLAS_NUM_THREADS": "1"}  # it reserves memory for each thread
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cory.judges.worker", str(theirs.fileno()), str(memory_mb)],
            env={**one_thread, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Worker(process, Connection(ours.detach()), set())


def _ending(process: subprocess.Popen[bytes], error: Exception) -> str:
    """How the process has ended whose connection failed with `error`."""
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return f"closed its connection ({type(error).__name__})"
    if code < 0:
        return f"died of signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"


def _kill_all(workers: list[Worker]) -> None:
    while workers:
        worker = workers.pop()
        with suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        worker.link.close()
