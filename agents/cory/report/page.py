"""The report of one run, from the files in its folder alone: curves, a table of before and after, samples.

Works while a run is going on and after it was stopped: it shows what is there and says what is not.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.report import html
from cory.tracking.curves import Curves, exchanges, policies, quantities, seatings, seats
from cory.tracking.labels import label
from cory.tracking.tracker import METRICS, SAMPLES, Curve, Key, curves, read, read_lines

WINDOW = 5
"""Training numbers of "first" and "last" are means over this many iterations; one iteration is noisy."""

SEATED = ("task_reward", "payoff", "kl", "combined_reward", "response_length", "eos_share")
"""What the table of the seats shows; the other numbers of an update are in a figure."""

SAMPLE_ROWS = 16
SAMPLE_TIMES = 5


def write_report(run: Path) -> Path:
    """`run/report.html` and `run/plots/*.png`, written anew; returns the page's path.

    The page carries its images and style, loads nothing, and shows model text as text. ValueError where the
    folder is not a run.
    """
    from cory.report import evaluation
    from cory.report.plots import draw

    if not (run / METRICS).is_file():
        raise ValueError(f"{run} holds no {METRICS}; name the folder of a run, such as runs/<name>")
    found = curves(read(run))
    samples = read_lines(run / SAMPLES) if (run / SAMPLES).is_file() else []
    parts = [
        html.heading(f"CORY run: {run.resolve().name}", level=1),
        html.paragraph(_progress(run, found), soft=True),
    ]
    judged = evaluation.found_in(run)
    parts += _held_out(found) + _data(run) + evaluation.section(judged) + _training(found)
    for plot in [*draw(found, run / "plots"), *evaluation.draw_pass_at_k(found, judged, run / "plots")]:
        parts += [html.heading(plot.title), html.picture(plot.path, title=plot.title, caption=plot.caption)]
    games = [row for row in samples if "failure" not in row]
    parts += _samples(games) + _failures([row for row in samples if "failure" in row]) + _files(run)
    path = run / "report.html"
    beside = path.with_suffix(".tmp")
    beside.write_text(html.page(f"CORY: {run.resolve().name}", parts), encoding="utf-8")
    os.replace(beside, path)
    return path


def _progress(run: Path, found: Curves) -> str:
    """How far the run came, who played, and how often the roles changed."""
    played = len(seatings(found))
    config = run / "config.yaml"
    line = re.search(r"^iterations:\s*(\d+)", config.read_text("utf-8"), re.M) if config.is_file() else None
    unfinished = f" of {line[1]} (not finished)" if line and played < int(line[1]) else ""
    return (
        f"Iterations: {played}{unfinished}. Seats: {', '.join(seats(found)) or 'none yet'}. "
        f"Policies: {', '.join(policies(found)) or 'none yet'}. Role exchanges: {len(exchanges(found))}."
    )


def _held_out(found: Curves) -> list[html.Markup]:
    """Each policy alone: its first evaluation, its last, and the reference on the same queries."""
    parts = [html.heading("Before and after, each policy alone on held-out queries")]
    shown = quantities(found, ["alone"])
    if not shown:
        return [*parts, html.paragraph("This run has no held-out evaluation yet.")]
    names = policies(found)
    rows = []
    for quantity in shown:
        reference = found.get(Key("alone", "reference", quantity), Curve([], []))
        alone = [found.get(Key("alone", name, quantity), Curve([], [])) for name in names]
        rows.append(
            [
                label(quantity),
                _number(reference.values[-1:]),
                *(_change(c.values[:1], c.values[-1:]) for c in alone),
            ]
        )
    last = max(i for key, curve in found.items() if key.place == "alone" for i in curve.iterations)
    note = f"First evaluation → last evaluation (at iteration {last}), and the difference."
    if unlike := found.get(Key("all", "policies", "ngram_distance")):
        distance = _change(unlike.values[:1], unlike.values[-1:])
        note += (
            f" {label('ngram_distance')[0].upper()}{label('ngram_distance')[1:]} of the policies: {distance}."
        )
    return [
        *parts,
        html.table(["", "reference", *names], rows, kind="numbers"),
        html.paragraph(note, soft=True),
    ]


def _data(run: Path) -> list[html.Markup]:
    """How many queries there were and what was left out; nothing where a run does not say."""
    path = run / "environment.json"
    told = json.loads(path.read_text(encoding="utf-8")).get("data") if path.is_file() else None
    if told is None:
        return []
    line = f"Queries: {told['train']:,} to train on, {told['test']:,} held out, of which the first "
    line += f"{told['evaluated']:,} were asked here."
    return [html.paragraph(text, soft=True) for text in (line, *(f"{t}." for t in told["left_out"]))]


def _training(found: Curves) -> list[html.Markup]:
    """What the games paid in each seat at the start and at the end of training."""
    shown = [quantity for quantity in quantities(found, seats(found)) if quantity in SEATED]
    if not shown:
        return []
    rows = []
    for quantity in shown:
        values = [_in_seat(found, seat, quantity) for seat in seats(found)]
        rows.append([label(quantity), *(_change(v[:WINDOW], v[-WINDOW:]) for v in values)])
    note = f"Means over the first and the last {WINDOW} iterations, whoever sat in the seat."
    table = html.table(["", *seats(found)], rows, kind="numbers")
    return [html.heading("While training, by seat"), table, html.paragraph(note, soft=True)]


def _samples(samples: Sequence[Mapping[str, Any]]) -> list[html.Markup]:
    """Games side by side: the last evaluation open, earlier ones folded."""
    if not samples:
        return []
    evaluated = [row for row in samples if "reference" in row] or samples
    times = sorted({row["iteration"] for row in evaluated})
    shown = {times[place * (len(times) - 1) // (SAMPLE_TIMES - 1)] for place in range(SAMPLE_TIMES)}
    parts = [html.heading("Samples")]
    for time in sorted(shown, reverse=True):
        rows = [row for row in samples if row["iteration"] == time][:SAMPLE_ROWS]
        parts.append(html.folded(f"Iteration {time}", _sample_table(rows), unfolded=time == times[-1]))
    return parts


def _sample_table(rows: Sequence[Mapping[str, Any]]) -> html.Markup:
    """query | reference | one column per seat, with its score | each policy alone."""
    first = rows[0]
    seated, sitting = list(first["score"]), first.get("seating", {})
    reference = ["reference"] if "reference" in first else []
    lone = [name for name in first.get("alone", {}) if name != "reference"]
    named = [f"{seat} ({sitting[seat]})" if seat in sitting else seat for seat in seated]
    body = []
    for row in rows:
        cells = [row["query"], *(_said(row[name]) for name in reference)]
        for seat in seated:
            score = row["score"][seat]
            cells.append(html.scored(_said(row[seat]), _number([] if score is None else [score])))
        body.append([*cells, *(_said(row["alone"][name]) for name in lone)])
    head = ["query", *reference, *named, *(f"{name} alone" for name in lone)]
    return html.table(head, body, kind="samples")


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[html.Markup]:
    """Responses on which a function that scores failed, folded."""
    if not rows:
        return []
    fields = ("iteration", "judge", "failure", "query", "response")
    body = [[_said(str(row[name])) for name in fields] for row in rows[:SAMPLE_ROWS]]
    return [html.folded("Responses that a judge failed on", html.table(list(fields), body, kind="samples"))]


def _files(run: Path) -> list[html.Markup]:
    """The configuration and the machine, folded."""
    there = [run / name for name in ("config.yaml", "environment.json") if (run / name).is_file()]
    folded = [html.folded(path.name, html.verbatim(path.read_text(encoding="utf-8"))) for path in there]
    return [html.heading("How it was made"), *folded] if folded else []


def _in_seat(found: Curves, seat: str, quantity: str) -> list[float]:
    """The numbers of a seat in the order of time, whichever policy sat in it."""
    mine = [curve for key, curve in found.items() if (key.place, key.quantity) == (seat, quantity)]
    return [value for _, value in sorted(point for curve in mine for point in zip(*curve, strict=True))]


def _said(response: str) -> html.Markup:
    said = response.strip()
    return html.inline(said) if said else html.Markup('<span class="score">(empty)</span>')


def _mean(values: Sequence[float]) -> float:
    kept = [value for value in values if math.isfinite(value)]
    return sum(kept) / len(kept) if kept else math.nan


def _number(values: Sequence[float]) -> str:
    """The mean of the finite values to three digits; a dash where there is none."""
    mean = _mean(values)
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.3f}" if abs(mean) < 1000 else f"{mean:.3g}"


def _change(first: Sequence[float], last: Sequence[float]) -> str:
    change = _mean(last) - _mean(first)
    return f"{_number(first)} → {_number(last)}" + (f"  ({change:+.3f})" if math.isfinite(change) else "")
