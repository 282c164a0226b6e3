"""Elements of a self-contained HTML page, from templates, which escape all text."""

import re
from collections.abc import Iterable
from typing import Any

import jinja2
from markupsafe import Markup as Markup
from markupsafe import escape as escape

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
    """The macros of a template as functions; each returns `Markup` and escapes what is not."""
    return TEMPLATES.get_template(template).module


ELEMENTS = macros("elements.html")


def page(title: str, parts: Iterable[Markup]) -> str:
    """A complete document."""
    template = TEMPLATES.get_template("page.html")
    return template.render(title=title, parts=list(parts)) + "\n"


heading = ELEMENTS.heading
command = ELEMENTS.command
paragraph = ELEMENTS.paragraph
alert = ELEMENTS.alert
badges = ELEMENTS.badges
table = ELEMENTS.table
collapsible = ELEMENTS.collapsible
preformatted = ELEMENTS.preformatted
figure = ELEMENTS.figure


def definitions(rows: list[list[str]]) -> list[Markup]:
    """What the quantities of a page are, to be unfolded; nothing without any."""
    return [collapsible("What the quantities are", table(["", ""], rows, kind="text"))] if rows else []


def contents(parts: Iterable[Markup]) -> Markup:
    """Links to the headings of `parts` that have an anchor."""
    links = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "\n".join(parts))
    return Markup(ELEMENTS.contents([(anchor, Markup(text)) for anchor, text in links]))
