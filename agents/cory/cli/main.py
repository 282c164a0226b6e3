"""The command `cory`: finds the module of a command and turns what ends it into an exit code."""

import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from cory.runtime.signals import Stopped
from cory.runtime.terminal import say
from cory_env.nearest import did_you_mean
from cory_env.registry import LOADED

COMMANDS = {
    "train": "fine-tune policies by playing; without options, the pocket models on movie reviews",
    "check": "play a few games by the settings of a run before it: prompts, scores, caps, seconds",
    "evaluate": "score runs, checkpoints or models on held-out queries, standalone and in the game",
    "play": "watch the policies of a run play, or take a seat yourself",
    "report": "draw the report of runs again, compare two or more, or draw the paper's figures",
    "probe": "measure what the two seats of a trained team do to each other",
    "average": "write the mean of several policies' weights as one model",
    "push": "upload the policies of a run to the Hugging Face hub, each with a model card",
    "study": "train arms x seeds, compare them by comparisons fixed before the run",
    "presets": "list the presets, or describe some",
    "tasks": "list the tasks, or the options of some",
    "algorithms": "list the learning algorithms, or the options of some",
    "doctor": "show machine, devices, versions and extras, and what is missing for what",
}
"""What each command does. `cory.cli.NAME` holds it as `command(argv)`."""

MODULES = {"check": "train", "presets": "catalogue", "tasks": "catalogue", "algorithms": "catalogue"}
"""Modules of commands that share one, where the function is called like the command."""

LOADING = {"average", "check", "evaluate", "play", "probe", "push", "report", "study", "train"}
"""Commands that load torch, which takes seconds."""

SILENT = {"-h", "--help", "--help-all", "--quiet"}
"""Words of a command that is to print nothing of the kind."""

USAGE = "\n".join(
    [
        "usage: cory COMMAND [options]\n",
        *(f"  {name:<11}{about}" for name, about in COMMANDS.items()),
        "\n`cory COMMAND --help` lists the options of a command; `cory --version` prints the version.",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A user's mistake is one `error:` paragraph on stderr and code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    show_any_text()
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if argv[0] == "--version":
        from cory import __version__

        print(f"cory {__version__}")
        return 0
    try:
        with short_warnings():
            run(argv)
    except Stopped as stopped:
        print_error(stopped, "; ".join([str(stopped), *stopped.__notes__]))
        return 128 + stopped.number
    except (ArithmeticError, MemoryError) as error:
        place = in_plugin(error)
        diverged = "" if place or isinstance(error, MemoryError) else "training diverged: "
        print_error(error, f"error: {diverged}{' '.join(str(error).split())}{place}")
        return 2 if place else 1
    except BrokenPipeError:  # the reader of a pipe, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ImportError) as error:
        text = "; ".join([str(error) + in_plugin(error), *getattr(error, "__notes__", ())])
        print_error(error, f"error: {' '.join(text.split())}")
        return 2
    except KeyboardInterrupt:
        print("stopped; the checkpoints that were written stand", file=sys.stderr)
        return 130
    return 0


@contextmanager
def short_warnings() -> Iterator[None]:
    """Print what is warned of inside as one line, without its place in the code."""
    before, warnings.formatwarning = warnings.formatwarning, lambda message, *_: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def in_plugin(error: BaseException) -> str:
    """Which line of a user's file raised an error; empty where none did."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [one for one in extract_tb(error.__traceback__) if Path(one.filename).resolve() in LOADED]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def show_any_text() -> None:
    """Let terminals and files that are not in UTF-8 get `?` for what they cannot hold."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_error(error: Exception, text: str) -> None:
    """Print what ended the command, unless rank 0 of several prints it (`cory.distributed.ranks`)."""
    if not getattr(error, "printed_by_rank_0", False):
        say(text, file=sys.stderr)


def run(argv: Sequence[str]) -> None:
    """Run the command that `argv` begins with; ValueError if there is none."""
    name, *words = argv
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        raise ValueError(f"there is no command {name!r}{hint}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for module:Class and module:function in the working directory
    if name in LOADING and "torch" not in sys.modules and not SILENT & set(words):
        print("loading torch and transformers", file=sys.stderr, flush=True)
    getattr(module_of(name), name if name in MODULES else "command")(words)


def module_of(name: str) -> ModuleType:
    """The module of a command, which no other command needs to import."""
    return import_module(f"cory.cli.{MODULES.get(name, name)}")
