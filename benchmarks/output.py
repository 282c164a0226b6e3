"""Write benchmark figures as JSON, with the command, commit and machine they come from."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from cory.runtime.provenance import environment


def provenance() -> dict[str, Any]:
    """Command, commit, versions and machine of this process."""
    return {**environment(), "command": command()}


def command() -> str:
    """The command line of this process; a script of this repository is written as a module."""
    script = Path(sys.argv[0])
    if script.is_relative_to(ROOT):
        module = ".".join(script.relative_to(ROOT).with_suffix("").parts)
        return shlex.join(["python", "-m", module, *sys.argv[1:]])
    return shlex.join(["python", *sys.argv])


def write_figures(path: Path, figures: Mapping[str, Any]) -> None:
    """Write `figures` and the provenance of this process."""
    path.write_text(json.dumps({**figures, **provenance()}, indent=1) + "\n", encoding="utf-8")
