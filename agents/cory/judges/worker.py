"""The far side of the fence: a process that calls functions of the user and can be killed at any time.

Started by `cory.judges.process_pool` as `python -m cory.judges.worker FD MEMORY_MB`. Standard library only, so
that it starts at once and leaves the memory to the function. What it answers is JSON: nothing that a function
returned is unpickled on the other side.
"""

import faulthandler
import importlib
import inspect
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from math import isfinite
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

SHOWN = 300
"""Characters of an error that are passed on."""

ORPHANED = 5.0
"""Seconds past its limit after which a call that nobody has stopped ends the process: its run is dead."""

Function = Callable[..., Iterable[Any]]


def main() -> None:
    """Answer until the other side hangs up, then end with everything that was started here."""
    link, own = Connection(int(sys.argv[1])), os.getpid()
    megabytes = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if megabytes and sys.platform != "darwin":  # macOS refuses such a limit
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, megabytes * 2**20))
    functions: dict[tuple[str, str], Function] = {}
    while True:
        try:
            job = pickle.loads(link.recv_bytes())
        except (EOFError, OSError):
            os.killpg(own, signal.SIGKILL)
        with open(os.devnull, "w") as nowhere:
            faulthandler.dump_traceback_later(job["seconds"] + ORPHANED, exit=True, file=nowhere)
            try:
                answer = _done(job, functions)
            except BaseException as error:  # whatever a function raises, SystemExit too
                answer = {"error": told(error), "spent": isinstance(error, MemoryError)}
            if os.getpid() != own:  # a fork that the function let return: it answers to nobody
                os._exit(0)
            faulthandler.cancel_dump_traceback_later()
        link.send_bytes(json.dumps(answer).encode())


def _done(job: dict[str, Any], functions: dict[tuple[str, str], Function]) -> dict[str, Any]:
    source = job["source"]
    if "owed" not in job:
        try:
            functions[source] = load(*source)
            parameters = inspect.signature(functions[source]).parameters.values()
        except ValueError as error:
            return {"error": str(error)[:SHOWN]}
        return {"parameters": [[p.name, p.kind.name, p.default is not p.empty] for p in parameters]}
    return {"scores": scores(functions[source](*job["positional"], **job["named"]), job["owed"])}


def load(kind: str, name: str) -> Function:
    """The function `module:name`, or what `cory.judges.rules` makes of another kind; ValueError if none."""
    if kind != "function":
        rules = importlib.import_module("cory.judges.rules")
        made: Function = rules.KINDS[kind](name)
        return made
    module, _, attribute = name.partition(":")
    try:
        function: Function = attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # importing a module runs it
        raise ValueError(f"cannot be imported ({told(error)}); write module:function") from error
    if not callable(function):
        raise ValueError(f"is no function but a {type(function).__name__}; name a function")
    return function


def scores(returned: Any, count: int) -> list[float | str]:
    """What a function returned as `count` finite numbers, or in place of one why it is none."""
    told = list(islice(returned.tolist() if hasattr(returned, "tolist") else returned, count + 1))
    if len(told) != count:
        more = " or more" * (len(told) > count)
        raise ValueError(f"returned {len(told)}{more} scores for {count} responses")
    return [_score(value) for value in told]


def _score(value: Any) -> float | str:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return f"returned {value!r}"[:SHOWN]
    number = float(value)
    return number if isfinite(number) else f"returned {number}"


def told(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {error}"[:SHOWN]


if __name__ == "__main__":
    main()
