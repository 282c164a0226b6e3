"""Prompt templates: text or chats with the placeholders `{query}`, `{response_0}`, `{response_1}`, ...

A template is text, in which `{{` is a brace, or a chat: messages whose contents are such text, rendered by
the chat template of the tokenizer.
"""

import re
import string
from collections.abc import Sequence

from cory_env.tokenizer import HFTokenizer, Message, Tokenizer

Template = str | Sequence[Message]

Piece = tuple[str, str | None]
"""Literal text, and the name of the placeholder behind it (None at the end)."""


def read_template(seat: str, template: Template, tokenizer: Tokenizer) -> list[Piece]:
    """Split the template of `seat` into pieces; a chat is first rendered, with marks for the placeholders."""
    if isinstance(template, str):
        return parse_template(seat, template)
    if not isinstance(tokenizer, HFTokenizer):
        raise ValueError(
            f"the template of {seat} is a chat and this tokenizer has no chat template; "
            "put cory_env.tokenizer.HFTokenizer around a Hugging Face tokenizer, or write the prompt as text"
        )
    names: list[str] = []
    messages: list[Message] = []
    for message in template:
        if not {"role", "content"} <= set(message):
            raise ValueError(
                f"the template of {seat} holds {dict(message)}; a message has a role and a content"
            )
        content = ""
        for literal, name in parse_template(seat, message["content"]):
            content += literal
            if name is not None:
                content += _mark(len(names))
                names.append(name)
        messages.append({**message, "content": content})
    parts = re.split(_mark(r"(\d+)"), tokenizer.chat(messages))
    placeholders = [names[int(number)] for number in parts[1::2]]
    return [*zip(parts[::2], placeholders, strict=False), (parts[-1], None)]


def parse_template(seat: str, text: str) -> list[Piece]:
    """Split a text template of `seat` into pieces."""
    try:
        return [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    except ValueError as error:
        raise ValueError(
            f"the template of {seat} cannot be read ({error}): {text!r}; write a brace as {{{{"
        ) from error


def _mark(number: int | str) -> str:
    """Return a mark for a placeholder in a chat, in characters that no text and no template uses."""
    return f"\ue000{number}\ue001"
