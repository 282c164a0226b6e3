"""Text from elsewhere on a terminal: what models, judges and files say must not steer it."""

from typing import TextIO


def plain(text: str) -> str:
    """`text` with its control characters written out, except for line breaks and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def say(text: object, *, file: TextIO | None = None) -> None:
    """Print the text without its control characters, by default to stdout."""
    print(plain(str(text)), file=file, flush=True)
