"""Templates: the words of a prompt, with `{query}` and `{response_0}`, `{response_1}`, ... for what is said.

A template is text, in which `{{` is a brace, or a chat: messages whose contents are such text, worded by the
chat template of the tokenizer.
"""

import re
import string
from collections.abc import Sequence

from cory_env.tokenizer import Message, Tokenizer, Wrapped

Template = str | Sequence[Message]

Piece = tuple[str, str | None]
"""Literal text, and the name of the placeholder behind it (None at the end)."""


def read_template(seat: str, template: Template, tokenizer: Tokenizer) -> list[Piece]:
    """The pieces of the prompt of `seat`; a chat is worded first, with marks where the placeholders are."""
    if isinstance(template, str):
        return parse_words(seat, template)
    if not isinstance(tokenizer, Wrapped):
        raise ValueError(
            f"the template of {seat} is a chat and this tokenizer has no words for one; "
            "use cory_env.tokenizer.wrap on a loaded Hugging Face tokenizer, or write the prompt as text"
        )
    names: list[str] = []
    turns: list[Message] = []
    for message in template:
        if not {"role", "content"} <= set(message):
            raise ValueError(
                f"the template of {seat} holds {dict(message)}; a message has a role and a content"
            )
        content = ""
        for literal, name in parse_words(seat, message["content"]):
            content += literal
            if name is not None:
                content += _mark(len(names))
                names.append(name)
        turns.append({**message, "content": content})
    words = re.split(_mark(r"(\d+)"), tokenizer.chat(turns))
    placeholders = [names[int(number)] for number in words[1::2]]
    return [*zip(words[::2], placeholders, strict=False), (words[-1], None)]


def parse_words(seat: str, words: str) -> list[Piece]:
    """The pieces of a text."""
    try:
        return [(literal, name) for literal, name, _, _ in string.Formatter().parse(words)]
    except ValueError as error:
        raise ValueError(
            f"the template of {seat} cannot be read ({error}): {words!r}; write a brace as {{{{"
        ) from error


def _mark(number: int | str) -> str:
    """Stands for a placeholder while a chat is worded; characters that no text and no template uses."""
    return f"\ue000{number}\ue001"
