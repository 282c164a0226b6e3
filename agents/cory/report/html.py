"""Elements of a self-contained HTML page, from templates, which escape all text."""

import base64
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup as Markup
from markupsafe import escape as escape

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8B4513")
"""Colours of lines: Okabe and Ito's, which colour-blind readers can distinguish, and two more."""
DARK_SERIES = ("#4FA9DE", "#F08A4B", "#2FC79B", "#DE9BC0", "#F0B73F", "#8CCBF2", "#A6A6A6", "#C98A5B")
"""The same colours in dark mode."""

GENERATOR = '<meta name="generator" content="cory">'
"""In the head of every page."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("cory.report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def macros(template: str) -> Any:
    """Return the macros of a template as functions; each returns `Markup` and escapes what is not."""
    return TEMPLATES.get_template(template).module


ELEMENTS = macros("elements.html")


def page(title: str, parts: Iterable[Markup]) -> str:
    """Return a complete document."""
    template = TEMPLATES.get_template("page.html")
    return template.render(title=title, parts=list(parts), series=SERIES, dark_series=DARK_SERIES) + "\n"


def heading(text: str, *, level: int = 2, anchor: str = "") -> Markup:
    """Return a heading, with an `anchor` one that a link of `contents` leads to."""
    return Markup(ELEMENTS.heading(text, level, anchor))


def contents(parts: Iterable[Markup]) -> Markup:
    """Return links to the headings of `parts` that have an anchor."""
    links = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "\n".join(parts))
    return Markup(ELEMENTS.contents([(anchor, Markup(text)) for anchor, text in links]))


def cards(parts: Iterable[Markup]) -> Markup:
    """Return parts side by side, one below the other where there is no room."""
    return Markup(ELEMENTS.cards(list(parts)))


def definitions(rows: Iterable[tuple[str, str]]) -> Markup:
    """Return names with their values."""
    return Markup(ELEMENTS.definitions(list(rows)))


def command(text: str) -> Markup:
    """Return a command, which one click selects as a whole."""
    return Markup(ELEMENTS.command(text))


def paragraph(text: str, *, muted: bool = False) -> Markup:
    """Return a paragraph, with `muted` a note in smaller grey type."""
    return Markup(ELEMENTS.paragraph(text, "muted" if muted else ""))


def alert(text: str) -> Markup:
    """Return a paragraph on something that went wrong."""
    return Markup(ELEMENTS.paragraph(text, "bad"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str) -> Markup:
    """Return a table that scrolls sideways if it is too wide; `kind` is a class: numbers or samples."""
    return Markup(ELEMENTS.table(head, list(rows), kind))


def figure(legend: Markup, panels: Markup, *, caption: str) -> Markup:
    """Return drawings side by side where there is room, between their legend and a caption."""
    return Markup(ELEMENTS.figure(legend, panels, caption))


def legend(keys: Sequence[tuple[Markup, str]]) -> Markup:
    """Return names, each after its key; nothing without any."""
    return Markup(ELEMENTS.legend(keys)) if keys else Markup()


def titled(name: str, content: Markup) -> Markup:
    """Return the content of a card under its name."""
    return Markup(ELEMENTS.titled(name, content))


def image(path: Path, *, title: str, caption: str) -> Markup:
    """Return a PNG embedded in the page at two thirds of its pixel size, which is sharp on dense screens."""
    data = path.read_bytes()
    width = int.from_bytes(data[16:20], "big") * 2 // 3  # the width in a PNG header
    return Markup(ELEMENTS.image(base64.b64encode(data).decode("ascii"), width, title, caption))


def collapsible(summary: str, content: Markup, *, is_open: bool = False) -> Markup:
    """Return a part that the reader can open and close."""
    return Markup(ELEMENTS.collapsible(summary, content, is_open))


def preformatted(text: str) -> Markup:
    """Return text in fixed-width type with its line breaks, such as the content of a file."""
    return Markup(ELEMENTS.preformatted(text))
