"""Check a built site: no page may load anything from elsewhere.

    python docs/check_site.py build/site

Links that a reader clicks (`<a href>`) may lead elsewhere; scripts, styles, fonts, images and frames may not.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADING = {"src", "srcset", "poster", "data", "background", "xlink:href"}
"""Attributes that make a browser load something, whatever the tag."""

PASSIVE = {"canonical", "index", "search", "next", "prev", "author", "copyright"}
"""`rel` of a `<link>` that loads nothing."""

REMOTE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*|@import\s+(?!url\())["']?([^"')\s]+)""", re.IGNORECASE)
IN_SCRIPT = re.compile(
    r"""(?:\bimport\s*\(\s*|\bfrom\s+|\bfetch\s*\(\s*|\bimportScripts\s*\(\s*|\.src\s*=\s*)["'`]((?:https?:)?//[^"'`]+)"""
)


class Page(HTMLParser):
    """What an HTML page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect addresses from the attributes of a tag."""
        values = {name: value or "" for name, value in attrs}
        self._inside = tag
        self.loaded += [value for name, value in values.items() if name in LOADING]
        self.loaded += IN_STYLE.findall(values.get("style", ""))
        if tag == "link" and not PASSIVE & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        if tag in ("use", "image"):
            self.loaded.append(values.get("href", ""))

    def handle_data(self, data: str) -> None:
        """Collect addresses from styles and scripts inside the page."""
        if self._inside == "style":
            self.loaded += IN_STYLE.findall(data)
        if self._inside == "script":
            self.loaded += IN_SCRIPT.findall(data)


def remote(site: Path) -> list[str]:
    """Return a line for everything that a file of the site loads from elsewhere."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css", ".js", ".svg"):
            continue
        text = path.read_text("utf-8")
        if path.suffix in (".html", ".svg"):
            addresses = Page(text).loaded
        else:
            addresses = (IN_STYLE if path.suffix == ".css" else IN_SCRIPT).findall(text)
        found += [f"{path.relative_to(site)} loads {one}" for one in addresses if REMOTE.match(one)]
    return found


def main(site: Path) -> int:
    """Print what is wrong; the exit code."""
    if not (site / "index.html").is_file():
        print(f"{site} holds no index.html; build the site first", file=sys.stderr)
        return 1
    problems = remote(site)
    print("\n".join(problems) or f"{site}: nothing is loaded from elsewhere")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
