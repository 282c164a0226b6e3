"""Worker process that calls user functions and can be killed at any time.

Started by `cory.judges.supervisor` as `python -m cory.judges.worker SOCKET MB`. Standard library only,
so that it starts fast and leaves the memory to the function. Replies are JSON: the parent process unpickles
nothing that a function returned.
"""

import asyncio
import faulthandler
import importlib
import inspect
import io
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from itertools import islice
from math import isfinite
from multiprocessing.connection import Connection
from operator import attrgetter
from types import ModuleType
from typing import Any

MAX_ERROR = 300
"""Characters of an error that are passed on."""

ORPHAN_TIMEOUT = 5.0
"""Seconds past its limit after which a call ends the process: the parent, which should have, is dead."""

MAX_SCORE = 1e9
"""Largest size of a score: the squares of larger ones leave float32."""

LOG_BYTES = 2**24
"""Size of a log from which on what functions print is dropped."""

Function = Callable[..., Any]

RUNNER = asyncio.Runner()
"""One event loop for all calls: semaphores and connections that a function keeps are bound to it."""


def main() -> None:
    """Serve jobs until the connection closes, then kill everything that was started here."""
    link, pid = Connection(int(sys.argv[1])), os.getpid()
    _limit(int(sys.argv[2]))
    sys.stdout = sys.stderr = log = Log()
    functions: dict[tuple[str, str], Function] = {}
    while True:
        try:
            job = pickle.loads(link.recv_bytes())
        except (EOFError, OSError):
            os.killpg(pid, signal.SIGKILL)
        assert sys.__stderr__ is not None
        faulthandler.dump_traceback_later(job["seconds"] + ORPHAN_TIMEOUT, exit=True, file=sys.__stderr__)
        log.path = job["log"]
        try:
            reply = _run(job, functions)
        except BaseException as error:  # a function may raise anything, SystemExit too
            reply = {"error": describe(error), "out_of_memory": isinstance(error, MemoryError)}
        if os.getpid() != pid:  # a fork that the function let return: it must not reply
            os._exit(0)
        faulthandler.cancel_dump_traceback_later()
        link.send_bytes(json.dumps(reply).encode())


class Log(io.TextIOBase):
    """What functions print, in the file of a run; dropped while there is none, and where it is full."""

    path: str | None = None

    def write(self, text: str) -> int:
        """Append the text, unless the file is full or cannot be written."""
        if self.path is not None:
            with suppress(OSError), open(self.path, "a", encoding="utf-8", errors="replace") as file:
                file.write(text[: max(0, LOG_BYTES - file.tell())])
        return len(text)


def _limit(megabytes: int) -> None:
    """Limit what is allocated, not what is mapped, as much of a GPU's torch is; macOS refuses."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if megabytes and sys.platform != "darwin":
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes * 2**20, megabytes * 2**20))


def _run(job: dict[str, Any], functions: dict[tuple[str, str], Function]) -> dict[str, Any]:
    """Import a function and return its parameters, or call it and return its scores."""
    source = job["source"]
    if "n_scores" not in job:
        try:
            functions[source] = load(*source)
            parameters = inspect.signature(functions[source]).parameters.values()
        except ValueError as error:
            return {"error": str(error)[:MAX_ERROR]}
        return {
            "parameters": [[p.name, p.kind.name, p.default is not p.empty] for p in parameters],
            "correct_from": getattr(functions[source], "correct_from", None),
            "team_only": str(getattr(functions[source], "team_only", "")),
        }
    returned = functions[source](*job["positional"], **job["named"])
    if inspect.isawaitable(returned):
        returned = RUNNER.run(_result(returned))
    return {"scores": scores(returned, job["n_scores"])}


async def _result(returned: Awaitable[Any]) -> Any:
    return await returned


def load(kind: str, name: str) -> Function:
    """Return the function `module:name` or `file.py:name`, or the rule of another kind; else ValueError."""
    if kind != "function":
        rules = importlib.import_module("cory.judges.rules")
        rule: Function = rules.KINDS[kind](name)
        return rule
    module, _, attribute = name.partition(":")
    try:
        function: Function = attrgetter(attribute)(_imported(module))
    except Exception as error:  # importing a module runs it
        raise ValueError(
            f"cannot be imported ({describe(error)}); write module:function or file.py:function"
        ) from error
    if not callable(function):
        raise ValueError(f"is a {type(function).__name__}, not a function; name a function")
    return function


def _imported(module: str) -> ModuleType:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    from cory_env.registry import module_of

    return module_of(module)


def scores(returned: Any, count: int) -> list[float | str]:
    """Convert what a function returned to `count` scores, each a finite number or a reason why not.

    ValueError if it is no list of that many: `returned None for 8 responses; return one number for each`.
    """
    values = returned.tolist() if hasattr(returned, "tolist") else returned
    ordered = hasattr(values, "__iter__") and not isinstance(values, str | bytes | Mapping | Set)
    values = list(islice(values, count + 1)) if ordered else []
    if not ordered or len(values) != count:
        more = " or more" * (len(values) > count)
        what = f"{len(values)}{more} scores" if ordered else f"{returned!r:.80}"
        raise ValueError(f"returned {what} for {count} responses; return one number for each")
    return [_score(value) for value in values]


def _score(value: Any) -> float | str:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return f"returned {value!r}"[:MAX_ERROR]
    try:
        number = float(value)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return f"returned {value!r:.80}, which is no number ({error})"
    if abs(number) <= MAX_SCORE:
        return number
    return f"returned {number:g}" + f", beyond {MAX_SCORE:g}" * isfinite(number)


def describe(error: BaseException) -> str:
    """Return an error's type and message in one line."""
    return f"{type(error).__name__}: {error}"[:MAX_ERROR]


if __name__ == "__main__":
    main()
