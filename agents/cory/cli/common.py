"""What commands on targets share: settings of a run that follow, progress, results that are written too."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cory.config.command_line import parse_settings
from cory.runtime.terminal import plain, say


def settings_for(targets: Sequence[str], words: Sequence[str], *, preset: str | None) -> dict[str, Any]:
    """The settings that flags give, which have the options of the first target's task."""
    if not words:
        return {}
    from cory.training.targets import config_of

    return parse_settings(words, default=config_of(targets, preset=preset), command="cory train")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that shows what is being done."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("loading") as status:
        yield lambda text: status.update(Text(plain(text)))


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
