"""Links of Markdown pages to files outside docs/: to GitHub, or to the page that includes the file."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/cory-rl/cory/blob/main"
INCLUDED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Files of the root that are pages of the site."""

LINK = re.compile(r"(?<!!)(\[[^\]\[]*\])\(((?:\.\./)+[^)\s#]+)(#[^)\s]*)?\)")
"""A link, no image, to a path that begins with ../"""

NAMED_BY_PATH = re.compile(r"(?<!!)\[[\w./-]+\.md\]\((?!https?:)([^)\s]+\.md)\)")
"""A link to a page whose text is the page's path, as GitHub shows it; the site shows the page's title."""

log = logging.getLogger(__name__)


def resolved(text: str, page: Path) -> str:
    """Return the Markdown `text` of the file `page` with its links out of docs/ replaced.

    A page that is named by its path is named by its title.

    A link to a file that does not exist is a warning, which fails a strict build.
    """

    def replace(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists() or not target.is_relative_to(ROOT):
            log.warning("%s links to %s, which is not in the repository", page.name, link[2])
            return link[0]
        inside = target.relative_to(ROOT).as_posix()
        if inside in INCLUDED:
            up = "../" * (len(page.parent.relative_to(ROOT / "docs").parts))
            return f"{link[1]}({up}{INCLUDED[inside]}{link[3] or ''})"
        return f"{link[1]}({REPOSITORY}/{inside}{link[3] or ''})"

    return NAMED_BY_PATH.sub(r"[](\1)", LINK.sub(replace, text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace links before a page, or a file that it includes, is parsed."""

    def read(app: Sphinx, docname: str, source: list[str]) -> None:
        page = Path(app.env.doc2path(docname))
        if page.suffix == ".md":
            source[0] = resolved(source[0], page)

    def read_included(app: Sphinx, path: Path, docname: str, content: list[str]) -> None:
        content[0] = NAMED_BY_PATH.sub(r"[](\1)", content[0])

    app.connect("source-read", read)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True}
