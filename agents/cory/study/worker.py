"""A process that trains the runs of a study one after another: `python -m cory.study.worker`.

It reads one JSON line per run from stdin and writes one per iteration and one per finished run to stdout;
what a run prints goes to its log. When the parent has gone, the next line cannot be written and the run ends.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from cory.config.parsing import flags_from, read
from cory.config.schema import Config
from cory.runtime.signals import Stopped
from cory.training import checkpoint
from cory.training import run as training_run


class Reporter:
    """Callback of a run that sends its iterations to the parent process."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def on_iteration(self, _trainer: object, iteration: int, _metrics: Mapping[str, float]) -> None:
        """Send one line."""
        send(self.out, {"iteration": iteration})


def send(out: TextIO, message: Mapping[str, Any]) -> None:
    """Write one JSON line at once."""
    out.write(json.dumps(message) + "\n")
    out.flush()


def train(folder: Path, settings: Mapping[str, Any], out: TextIO) -> dict[str, str]:
    """Train one run, from its newest checkpoint if it has one; how it ended."""
    try:
        config = read(flags_from(dict(settings)), default=Config(), about="", command="cory study")
        begun = bool(checkpoint.finished(folder))
        training_run.train(
            config,
            folder,
            resume="auto" if begun else "never",
            overwrite=not begun,
            callbacks=[Reporter(out)],
            report=False,  # it takes longer than a small run; `cory report RUN` draws it
        )
    except Stopped as stopped:
        print(stopped, *stopped.__notes__, sep="; ", file=sys.stderr)
        return {"status": "stopped"}
    except BrokenPipeError:
        raise
    except Exception as error:  # of any arm: the others go on
        traceback.print_exc()
        return {"status": "failed", "error": " ".join(f"{type(error).__name__}: {error}".split())}
    return {"status": "finished"}


def main() -> None:
    """Train what stdin names, until it ends or a run is stopped."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(job["folder"])
        with folder.with_name(f"{folder.name}.log").open("a", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        result = train(folder, job["settings"], out)
        sys.stdout.flush()
        send(out, result)
        if result["status"] == "stopped":
            return


if __name__ == "__main__":
    main()
