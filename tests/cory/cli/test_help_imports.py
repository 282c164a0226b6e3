"""What is only text is printed without the libraries that train: they take seconds to import."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "peft", "scipy", "pandas", "matplotlib", "datasets"}
COMMANDS = [
    "--help", "--version", "train --help", "train --help-all", "train --preset gsm8k --help",
    "train --algorithm grpo --task relay --help", "evaluate --help", "play --help", "report --help",
    "probe --help", "average --help", "push --help", "study --help",
    "presets", "presets imdb", "tasks", "tasks echo", "algorithms --help", "doctor --help",
]  # fmt: skip
SCRIPT = f"""
import contextlib, io, sys
from cory.cli.main import main
for command in {COMMANDS!r}:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main(command.split())
    assert text.getvalue(), command
    imported = {HEAVY!r} & set(sys.modules)
    assert not imported, f"cory {{command}} imports {{imported}}"
"""


@pytest.mark.slow
def test_help_and_lists_import_no_library_that_trains():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
