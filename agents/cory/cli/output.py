"""Results of commands that are printed and written too."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cory.runtime.terminal import say


@contextmanager
def not_written(path: Path, *, named: bool, instead: Callable[[], list[str]] = list) -> Iterator[None]:
    """Print a warning if a result that is on the screen cannot be written, as into a run that is read-only.

    The lines `instead` are printed first. OSError if the user `named` the file.
    """
    try:
        yield
    except OSError as error:
        if named:
            raise
        for line in instead():
            say(line)
        say(
            f"warning: {path} cannot be written ({error.strerror}); --out FILE writes elsewhere",
            file=sys.stderr,
        )
