"""Docstrings as reStructuredText: plain text with names in backquotes, indented examples and pipe tables.

Sections (Args, Returns, Raises) are those of napoleon, which is not loaded as an extension: it takes what
stands before a colon in the docstring of an attribute for a type.
"""

import re
from dataclasses import is_dataclass
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LISTED = re.compile(r"- |\d+\. |\w+:$")
"""Beginnings of paragraphs whose indented lines are their own: items of a list, sections."""


def converted(lines: list[str]) -> list[str]:
    """Return the lines as reStructuredText: examples and tables as literal blocks, backquotes as code.

    An example is a paragraph, or the end of one, that is indented by four spaces or more.
    """
    found: list[str] = []
    literal = section = False
    for line in lines:
        indented, table = line.startswith("    "), line.startswith("|")
        if not line.strip():
            found.append("")
            continue
        section = line.rstrip() in ("Args:", "Returns:", "Raises:") or (section and indented)
        if (indented or table) and not section:
            if not literal:
                found += ["", "::", ""]
            found.append(f"    {line}" if table else line)
            literal = True
            continue
        if literal:
            found.append("")
        literal = False
        found.append(line if section else _escaped(line))
    return found


def _escaped(line: str) -> str:
    """Return a line of prose with `names` as code and bars that are no substitution."""
    parts = CODE.split(line)
    prose = [re.sub(r"(?<=\S)_(?=\W|$)", r"\\_", part.replace("|", r"\|")) for part in parts[::2]]
    code = [f"``{part}``" for part in parts[1::2]]
    return "".join(text for pair in zip(prose, [*code, ""], strict=True) for text in pair)


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring in place."""
    rest = converted("\n".join(lines).split("\n"))
    if what not in ("attribute", "data", "property"):
        config = Config(napoleon_use_rtype=False, napoleon_preprocess_types=False)
        rest = GoogleDocstring(rest, config, app, what, name, obj, options).lines()
    lines[:] = rest


def without_fields(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """Leave out the signature of a dataclass: its fields are listed below it, with defaults."""
    return ("", None) if what == "class" and is_dataclass(obj) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Convert every docstring that autodoc reads."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", without_fields)
    return {"parallel_read_safe": True}
