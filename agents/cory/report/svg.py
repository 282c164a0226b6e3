"""Figures as inline SVG: one drawing per panel, in the colours of the page, so that they fit a phone.

A figure on disk is one image with all panels; on a page every panel is scaled by itself, and the legend is
text beneath the title.
"""

import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cory.report import html

SAVED: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "cory", "font.family": "sans-serif"}
THEME = {
    "#000000": "currentColor",
    "#444444": "var(--muted)",
    "#4d4d4d": "var(--muted)",
    "#ffffff": "var(--paper)",
}
"""Colours of a figure that the page replaces by its own; the others are `html.SERIES` or are kept."""
POINTS_PER_INCH = 72


def figure(drawn: Figure, *, title: str, caption: str) -> html.Markup:
    """Return a figure element: legend, panels side by side where there is room, caption.

    `drawn` has been saved before, which laid out its panels.
    """
    return html.figure(_legend(drawn), html.Markup("".join(_panels(drawn, title))), caption=caption)


def _panels(drawn: Figure, title: str) -> list[str]:
    """Return one SVG per panel, cropped to it."""
    drawn.set_layout_engine("none")
    shown = [axes for axes in drawn.axes if axes.get_visible()]
    for legend in drawn.legends:
        legend.set_visible(False)
    found = []
    for axes in shown:
        for other in shown:
            other.set_visible(other is axes)
        box = axes.get_tightbbox()
        assert box is not None  # it is visible
        buffer = io.StringIO()
        with matplotlib.rc_context(SAVED):
            inches = box.transformed(drawn.dpi_scale_trans.inverted()).padded(0.05)
            drawn.savefig(buffer, format="svg", bbox_inches=inches, transparent=True)
        name = f"{title}: {axes.get_ylabel() or axes.get_title() or axes.get_xlabel()}".replace("\n", " ")
        found.append(_inlined(buffer.getvalue(), name, points=inches.width * POINTS_PER_INCH))
    for axes in shown:
        axes.set_visible(True)
    return found


def _inlined(document: str, name: str, *, points: float) -> str:
    """Return an SVG document as an element of a page: no prologue, no metadata, colours of the page."""
    text = document[document.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    used = set(re.findall(r"#([\w.]+)[\")]", text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    text = re.sub(r"(stroke|fill): (#[0-9a-f]{6})", lambda found: f"{found[1]}: {_colour(found[2])}", text)
    text = re.sub(r"xlink:href", "href", text)
    size = re.compile(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>')
    head = (
        f'<svg viewBox="\\1" role="img" aria-label="{html.escape(name)}" '
        f'style="max-width: {1.35 * points:.0f}px">'
    )
    return re.sub(r"\s*\n\s*", "\n", size.sub(head.replace("\\1", r"\g<1>"), text, count=1)).strip()


def _colour(colour: str) -> str:
    """Return a colour as the page names it, which makes it lighter in dark mode."""
    if colour in THEME:
        return THEME[colour]
    series = [one.lower() for one in html.SERIES]
    return f"var(--series-{series.index(colour)})" if colour in series else colour


def _legend(drawn: Figure) -> html.Markup:
    """Return the legend of the whole figure as text with a short line before each name."""
    names = [(handle, text.get_text().strip()) for one in drawn.legends for handle, text in _entries(one)]
    return html.legend([(_key(handle), name) for handle, name in names if name])


def _entries(legend: Any) -> Sequence[tuple[Line2D, Any]]:
    return [
        (handle, text)
        for handle, text in zip_longest(legend.legend_handles, legend.get_texts())
        if isinstance(handle, Line2D)
    ]


def _key(line: Line2D) -> html.Markup:
    """Return a short line, or a cross for a marker without a line."""
    colour = _colour(matplotlib.colors.to_hex(line.get_color()))
    if line.get_linestyle() == "None":
        path = '<path d="M8 2 16 10M16 2 8 10"'
    else:
        dashes = line._unscaled_dash_pattern[1]  # type: ignore[attr-defined]  # no public name
        pattern = " ".join(f"{1.7 * part:g}" for part in dashes or ())
        path = f'<path d="M0 6H24" stroke-dasharray="{pattern}"' if pattern else '<path d="M0 6H24"'
    return html.Markup(
        f'<svg class="key" viewBox="0 0 24 12" aria-hidden="true">{path} style="stroke: {colour}"/></svg>'
    )
