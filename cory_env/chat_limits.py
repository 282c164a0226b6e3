"""Limits of chat templates: programs of others that could loop or allocate without end.

A template's first chat is rendered in a process that can be killed. That process runs this file and imports
Jinja only, which takes a tenth of a second.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

CPU_SECONDS = 2
"""CPU time that a chat may take; real templates take milliseconds."""

WALL_SECONDS = 60.0
"""Time that it may take on a busy machine."""

MEMORY_MB = 1024
"""Address space of the process, where the system limits it."""

MAX_CHARACTERS = 1_000_000
"""Longest rendered chat."""

_within_limits: set[str] = set()


def check(template: str, chat: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, Any]) -> None:
    """Render `chat` by a template that this process has not checked yet; ValueError if it exceeds a limit.

    What the template refuses for another reason is left to the tokenizer's own rendering.
    """
    if template in _within_limits:
        return
    variables = {**special_tokens, "messages": chat, "add_generation_prompt": True}
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, "-P", __file__],
            input=json.dumps([template, variables], default=str).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=WALL_SECONDS,
        )
        if done.returncode == 0:
            _within_limits.add(template)
            return
    raise ValueError(
        f"the chat template takes more than {CPU_SECONDS} s or {MEMORY_MB} MB, or writes more than "
        f"{MAX_CHARACTERS:,} characters, for a chat of {len(chat)} messages; use another tokenizer, or "
        "prompts that are text"
    )


def _main() -> None:
    """Render what stdin holds under the limits; ends with an error if it exceeds one."""
    template, variables = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    if sys.platform != "darwin":  # it refuses
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB * 2**20, MEMORY_MB * 2**20))
    n_characters = 0
    try:
        for text in _environment().from_string(template).generate(tools=None, documents=None, **variables):
            n_characters += len(text)
            if n_characters > MAX_CHARACTERS:
                sys.exit(1)
    except MemoryError:
        sys.exit(1)
    except Exception:  # the template's own, which the tokenizer's rendering reports
        return


def _environment() -> Any:
    """Return the sandbox in which transformers renders chat templates, with its tags and functions."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag around what an assistant says, which changes no text."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            """Return the statements of the block."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = datetime.now().strftime
    return environment


if __name__ == "__main__":
    _main()
