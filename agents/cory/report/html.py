"""Elements of a self-contained HTML page. All text is escaped here; the page loads nothing."""

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8B4513")
"""Colours of lines: Okabe and Ito's, which colour-blind readers can distinguish, and two more."""
DARK_SERIES = ("#4FA9DE", "#F08A4B", "#2FC79B", "#DE9BC0", "#F0B73F", "#8CCBF2", "#A6A6A6", "#C98A5B")
"""The same colours in dark mode."""


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--series-{i}: {colour};" for i, colour in enumerate(colours))


STYLE = (
    ":root { color-scheme: light dark; --ink: #1c2024; --muted: #5c6670; --paper: #ffffff; --card: #f5f6f8;\n"
    f"  --line: #d9dde2; --heat: 213 94 0; --shade: rgb(0 0 0 / .18); --bad: #b3261e;\n"
    f"  {_variables(SERIES)} }}\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --muted: #9aa4ae; --paper: #15181b;\n"
    "  --card: #1e2226; --line: #363c42; --heat: 240 138 75; --bad: #ff8a80;\n"
    "  --shade: rgb(255 255 255 / .16);\n"
    f"  {_variables(DARK_SERIES)} }}\n"
    "  img { filter: invert(.91) hue-rotate(180deg); } }"
    """
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; scroll-padding-top: 3.2rem; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; } .muted, figcaption { color: var(--muted); font-size: .9rem; }
a { color: var(--series-0); }
nav { position: sticky; top: 0; z-index: 1; margin: .8rem 0; padding: .5rem 0; overflow-x: auto;
  white-space: nowrap; background: var(--paper); border-bottom: 1px solid var(--line); font-size: .9rem;
  scrollbar-width: thin; }
nav a { margin-right: 1rem; text-decoration: none; }
.wide { overflow-x: auto; overflow-wrap: normal;
  background: linear-gradient(90deg, var(--paper) 30%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(-90deg, var(--paper) 30%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(90deg, var(--shade), transparent) left / .8rem 100% no-repeat scroll,
    linear-gradient(-90deg, var(--shade), transparent) right / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
table.numbers td + td, table.numbers th + th { text-align: right; padding-left: 1.2rem; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
table.samples td { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 9rem; }
.score { color: var(--muted); font-size: .82rem; font-variant-numeric: tabular-nums; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); gap: .8rem;
  margin: .8rem 0; }
.card { padding: .7rem .9rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.card h3 { margin: 0 0 .3rem; }
.card h4 { margin: 0; font-size: .82rem; color: var(--muted); font-weight: 600; }
.card .cards { margin: .5rem 0 0; grid-template-columns: repeat(auto-fit, minmax(min(100%, 13rem), 1fr)); }
.card .card { background: var(--paper); }
.games > .card { margin: .8rem 0; }
.text { white-space: pre-wrap; margin: .2rem 0; } .query { color: var(--muted); }
dl { display: grid; grid-template-columns: auto auto; gap: .15rem .8rem; margin: 0; font-size: .92rem; }
dt { color: var(--muted); } dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: var(--bad); font-weight: 600; }
.heat-1 { background: rgb(var(--heat) / .14); } .heat-2 { background: rgb(var(--heat) / .28); }
.heat-3 { background: rgb(var(--heat) / .45); } .heat-4 { background: rgb(var(--heat) / .65); }
[class^="heat-"] { border-radius: 3px; }
figure { margin: 1rem 0 2rem; } figcaption { max-width: 46rem; margin-top: .4rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr));
  gap: 1rem; align-items: end; }
.panels svg { display: block; width: 100%; height: auto; } svg { stroke-linejoin: round; }
svg text { fill: currentColor; font-family: inherit; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .9rem; max-width: none; }
.key { width: 24px; height: 12px; margin-right: .4rem; fill: none; stroke-width: 2; }
img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; padding: 8px; box-sizing: border-box; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; padding: .8rem 1rem; background: var(--card); border-radius: 6px; font-size: .85rem;
  overflow-wrap: normal; }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; -webkit-user-select: all; }
@media (max-width: 40rem) {
  body { padding: 1rem; } table.numbers td, table.numbers th { padding-right: .3rem; }
  table.numbers td + td, table.numbers th + th { padding-left: .5rem; white-space: normal; }
  table.numbers { font-size: .85rem; }
}
@media (min-width: 40rem) { nav { white-space: normal; } nav a { display: inline-block; } }
@media print { nav { display: none; } }
"""
)

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


def heading(text: str, *, level: int = 2, anchor: str = "") -> Markup:
    """Return a heading, with an `anchor` one that a link of `contents` leads to."""
    name = f' id="{inline(anchor)}"' if anchor else ""
    return Markup(f"<h{level}{name}>{inline(text)}</h{level}>")


def contents(parts: Iterable[Markup]) -> Markup:
    """Return links to the headings of `parts` that have an anchor."""
    links = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "\n".join(parts))
    return Markup("<nav>" + "".join(f'<a href="#{anchor}">{text}</a>' for anchor, text in links) + "</nav>")


def cards(parts: Iterable[Markup]) -> Markup:
    """Return parts side by side, one below the other where there is no room."""
    inner = "\n".join(f'<div class="card">{content}</div>' for content in parts)
    return Markup(f'<div class="cards">{inner}</div>')


def definitions(rows: Iterable[tuple[str, str]]) -> Markup:
    """Return names with their values."""
    pairs = "".join(f"<dt>{inline(name)}</dt><dd>{inline(value)}</dd>" for name, value in rows)
    return Markup(f"<dl>{pairs}</dl>")


def command(text: str) -> Markup:
    """Return a command, which one click selects as a whole."""
    return Markup(f'<pre class="command">{inline(text)}</pre>')


def paragraph(text: str, *, muted: bool = False) -> Markup:
    """Return a paragraph, with `muted` a note in smaller grey type."""
    return Markup(f'<p class="muted">{inline(text)}</p>' if muted else f"<p>{inline(text)}</p>")


def alert(text: str) -> Markup:
    """Return a paragraph on something that went wrong."""
    return Markup(f'<p class="bad">{inline(text)}</p>')


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str) -> Markup:
    """Return a table that scrolls sideways if it is too wide; `kind` is a class: numbers or samples."""
    header = "".join(f"<th>{inline(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{inline(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    content = f"<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return Markup(f'<div class="wide"><table class="{kind}">\n{content}</table></div>')


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
