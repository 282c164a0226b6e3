"""SmolLM2-135M: fetch the model, fit a judge on its states, prepare it for a task by supervised learning."""

import json
from collections.abc import Callable
from typing import Any


def main(function: Callable[[Any], Any], config: Any, about: str | None) -> None:
    """Read a `config` from the command line, and print what `function` makes of it, as JSON.

    What a user can cause ends the program with one sentence.
    """
    import tyro

    try:
        print(json.dumps(function(tyro.cli(config, description=about)), default=str))
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"error: {error}") from None
