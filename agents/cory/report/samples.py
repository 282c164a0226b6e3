"""Sample games on the report page: responses side by side, tokens coloured by their KL to the reference."""

from collections.abc import Mapping, Sequence
from typing import Any

from cory.evaluation import averaging
from cory.report import html
from cory.report.summary import mean, number

ROWS = 16
"""Most games of one evaluation on a page."""
TIMES = 5
"""Evaluations whose games are shown."""
HEAT = (0.1, 0.5, 1.0, 2.0)
"""KL of a token in nats from which it has the first, second, ... colour."""

END = "\N{END OF PROOF}"
"""Shown where a response ends."""
EMPTY = html.Markup(' <span class="score">(empty)</span>')

MACROS = html.macros("samples.html")

Row = Mapping[str, Any]


def first(
    rows: Sequence[Row], *, continues: bool, title: str = "Samples", anchor: str = ""
) -> list[html.Markup]:
    """Queries of the last evaluation with the response of the reference and of each policy, and their scores.

    Those of the best, the median and the worst gain, mean over the policies; the first three without scores.
    `continues`: a response and its query are one text.
    """
    evaluated = _evaluated(rows)
    if not evaluated:
        return []
    last = [row for row in evaluated if row["iteration"] == evaluated[-1]["iteration"]]
    note = f"Responses at iteration {last[0]['iteration']} to held-out queries, each policy standalone"
    if all("eval_score" in row for row in last):
        last.sort(key=_gain, reverse=True)
        last = list({id(row): row for row in (last[0], last[len(last) // 2], last[-1])}.values())
        note += "; of the games that are kept, those of best, median and worst gain on the reference"
    shown = [_game(row, _standalone(row) or _seated(row), continues) for row in last[:3]]
    note += "."
    return [html.heading(title, anchor=anchor), html.paragraph(note, muted=True), MACROS.games(shown)]


def sections(rows: Sequence[Row], *, continues: bool) -> list[html.Markup]:
    """Sample games: those of the last evaluation open, earlier ones closed."""
    evaluated = _evaluated(rows)
    if not evaluated:
        return []
    times = sorted({row["iteration"] for row in evaluated})
    shown = {times[place * (len(times) - 1) // (TIMES - 1)] for place in range(TIMES)}
    parts = [html.heading("Sample games", anchor="sample-games")]
    if any("token_kl" in row for row in evaluated):
        parts.append(html.Markup(MACROS.scale(HEAT, END)))
    for time in sorted(shown, reverse=True):
        games = [
            _game(row, _seated(row), continues, below=_standalone(row))
            for row in [row for row in rows if row["iteration"] == time][:ROWS]
        ]
        parts.append(html.collapsible(f"Iteration {time}", MACROS.games(games), is_open=time == times[-1]))
    return parts


def failures(rows: Sequence[Row]) -> list[html.Markup]:
    """The table of responses that a judge failed on; empty if there are none."""
    if not rows:
        return []
    fields = ("iteration", "judge", "failure", "query", "response")
    body = [[_text(str(row[name])) for name in fields] for row in rows[:ROWS]]
    table = html.table(list(fields), body, kind="samples")
    return [html.collapsible("Responses that a judge failed on", table)]


def _gain(row: Row) -> float:
    """The mean over the policies of the score minus the reference's, or that of the policy's own."""
    scores = row["eval_score"]
    names = [name for name in scores if not name.startswith("reference") and name != averaging.NAME]
    of_reference = scores.get("reference", 0.0)
    return mean([scores[name] - scores.get(f"reference_{name}", of_reference) for name in names])


def _evaluated(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.get("eval")] or list(rows)


def _standalone(row: Row) -> list[tuple[str, html.Markup]]:
    """The responses of the reference and of each policy without a partner."""
    if "eval" not in row:
        return []
    alone = dict(sorted(row["eval"].items(), key=lambda item: not item[0].startswith("reference")))
    names = {name: name if name.startswith("reference") else f"{name} standalone" for name in alone}
    scores = row.get("eval_score", {})
    return [
        (names[name], html.Markup(MACROS.scored(_text(text), f"score {number([scores[name]])}")))
        if name in scores
        else (names[name], _text(text))
        for name, text in alone.items()
    ]


def _seated(row: Row) -> list[tuple[str, html.Markup]]:
    """The responses of each seat with score and KL, coloured where the KL of its tokens is known."""
    seating, tokens, responses = row.get("seating", {}), row.get("token_kl", {}), []
    for seat, score in row["score"].items():
        note = f"score {number([] if score is None else [score])}"
        text = _text(row[seat])
        if seat in row.get("kl", {}):
            note += f", KL {number([row['kl'][seat]])} nats"
        if seat in tokens:
            text = _coloured(row[seat], tokens[seat])
        name = f"{seat} ({seating[seat]})" if seat in seating else seat
        responses.append((name, html.Markup(MACROS.scored(text, note))))
    return responses


def _coloured(text: str, tokens: Sequence[tuple[str, float | None]]) -> html.Markup:
    """The tokens of a response, each on its colour; what follows them is plain."""
    shown = []
    for piece, kl in tokens:
        known = "not finite" if kl is None else f"{kl:.2f} nats"
        shown.append(
            {
                "text": piece or END,
                "heat": 0 if kl is None else sum(kl >= low for low in HEAT),
                "title": known if piece else f"end of the response, {known}",
            }
        )
    length = sum(len(piece) for piece, _ in tokens)
    return html.Markup(MACROS.coloured(shown, text[length:]))


def _game(
    row: Row,
    sides: Sequence[tuple[str, html.Markup]],
    continues: bool,
    *,
    below: Sequence[tuple[str, html.Markup]] = (),
) -> html.Markup:
    """A card of one query with a card per response; `below` are in a row of their own."""
    query = row["query"]
    groups = [
        [(name, MACROS.continued(query, text) if continues else text.lstrip()) for name, text in group]
        for group in (sides, below)
        if group
    ]
    return html.Markup(MACROS.game(None if continues else query, groups))


def _text(response: str) -> html.Markup:
    """A response; `(empty)` if it has no visible character."""
    return html.escape(response.rstrip()) if response.strip() else EMPTY
