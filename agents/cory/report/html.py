"""Elements of a self-contained HTML page. All text is escaped here; the page loads nothing."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2024; --muted: #5c6670; --paper: #ffffff; --card: #f5f6f8; --line: #d9dde2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --muted: #9aa4ae; --paper: #15181b; --card: #1e2226; --line: #363c42; }
}
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p { margin: .4rem 0; max-width: 46rem; } .muted, figcaption { color: var(--muted); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
table.numbers td + td, table.numbers th + th { text-align: right; padding-left: 1.2rem; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
table.samples td { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 9rem; }
.score { color: var(--muted); font-size: .82rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0 2rem; } figcaption { max-width: 46rem; margin-top: .4rem; }
img { display: block; max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 6px;
  padding: 8px;  box-sizing: border-box; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; padding: .8rem 1rem; background: var(--card); border-radius: 6px; font-size: .85rem; }
"""

CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Forbids the browser to run scripts or load anything, whatever text the models wrote."""


class Markup(str):
    """Text that is already HTML; a plain `str` is escaped when it is put into a page."""

    __slots__ = ()


def inline(text: str) -> Markup:
    """Escape text that is not markup."""
    return text if isinstance(text, Markup) else Markup(escape(text))


def page(title: str, parts: Iterable[Markup]) -> str:
    """Return a complete document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        f"<title>{inline(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def heading(text: str, *, level: int = 2) -> Markup:
    """Return a heading."""
    return Markup(f"<h{level}>{inline(text)}</h{level}>")


def paragraph(text: str, *, muted: bool = False) -> Markup:
    """Return a paragraph, with `muted` a note in smaller grey type."""
    return Markup(f'<p class="muted">{inline(text)}</p>' if muted else f"<p>{inline(text)}</p>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str) -> Markup:
    """Return a table that scrolls sideways if it is too wide; `kind` is a class: numbers or samples."""
    header = "".join(f"<th>{inline(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{inline(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    content = f"<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return Markup(f'<div class="wide"><table class="{kind}">\n{content}</table></div>')


def scored(text: str, score: str) -> Markup:
    """Return a response with its score beneath."""
    return Markup(f'{inline(text)}\n<span class="score">{inline(score)}</span>')


def image(path: Path, *, title: str, caption: str) -> Markup:
    """Return a PNG embedded in the page at two thirds of its pixel size, which is sharp on dense screens."""
    data = path.read_bytes()
    width = int.from_bytes(data[16:20], "big") * 2 // 3  # the width in a PNG header
    source = base64.b64encode(data).decode("ascii")
    element = f'<img alt="{inline(title)}" width="{width}" src="data:image/png;base64,{source}">'
    return Markup(f"<figure>{element}<figcaption>{inline(caption)}</figcaption></figure>")


def collapsible(summary: str, content: Markup, *, is_open: bool = False) -> Markup:
    """Return a part that the reader can open and close."""
    return Markup(
        f"<details{' open' if is_open else ''}><summary>{inline(summary)}</summary>\n{content}\n</details>"
    )


def preformatted(text: str) -> Markup:
    """Return text in fixed-width type with its line breaks, such as the content of a file."""
    return Markup(f"<pre>{inline(text)}</pre>")
