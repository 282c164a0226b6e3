"""Report page of a run, made from the files in its directory: tables, plots and samples.

Works on unfinished runs too: missing parts are left out or reported as missing.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.report import html
from cory.report.overview import best_checkpoint, head, read_config, read_environment
from cory.tracking.curves import Curves, policies, quantities, seatings, seats
from cory.tracking.labels import label
from cory.tracking.tracker import METRICS, SAMPLES, Curve, Key, curves, read, read_lines

WINDOW = 5
"""Iterations that the first and the last training metrics are averaged over, as a single one is noisy; half
of the iterations in shorter runs."""

SEATED = ("task_reward", "payoff", "kl", "combined_reward", "response_length", "eos_share")
"""Quantities in the table of the seats; the others are in a plot."""

SAMPLE_ROWS = 16
SAMPLE_TIMES = 5
NO_CURVE = Curve([], [])


def write_report(run: Path) -> Path:
    """Write `run/report.html` and `run/plots/*.png`; return the page's path.

    The page embeds its images and style, loads nothing, and shows model text as text. ValueError if the
    directory is not a run.
    """
    from cory.report import evaluation, probe
    from cory.report.plots import draw

    if not (run / METRICS).is_file():
        raise ValueError(f"{run} holds no {METRICS}; name the folder of a run, such as runs/<name>")
    run_curves = curves(read(run))
    samples = read_lines(run / SAMPLES) if (run / SAMPLES).is_file() else []
    config, environment = read_config(run), read_environment(run)
    parts = [
        html.heading(f"CORY run: {run.resolve().name}", level=1),
        *head(config, environment, run_curves),
        *_held_out(run_curves),
        *best_checkpoint(run, config, run_curves),
        *_data(environment),
        *evaluation.sections(run, config),
        *probe.sections(run),
        *_training(run_curves),
    ]
    for plot in [*draw(run_curves, run / "plots"), *evaluation.draw_training(run_curves, run / "plots")]:
        parts += [html.heading(plot.title), html.image(plot.path, title=plot.title, caption=plot.caption)]
    games = [row for row in samples if "failure" not in row]
    parts += _samples(games) + _failures([row for row in samples if "failure" in row]) + _files(run)
    path = run / "report.html"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(html.page(f"CORY: {run.resolve().name}", parts), encoding="utf-8")
    os.replace(temporary, path)
    return path


def _held_out(run_curves: Curves) -> list[html.Markup]:
    """Return the table of standalone evaluations: first and last of each policy, and the reference."""
    parts = [html.heading("Held-out evaluation before and after training")]
    shown = quantities(run_curves, ["eval"])
    if not shown:
        return [*parts, html.paragraph("This run has no held-out evaluation yet.")]
    names = policies(run_curves)
    rows = []
    for quantity in shown:
        reference = run_curves.get(Key("eval", "reference", quantity), NO_CURVE)
        of_policies = [run_curves.get(Key("eval", name, quantity), NO_CURVE) for name in names]
        changes = [_change(curve.values[:1], curve.values[-1:]) for curve in of_policies]
        rows.append([label(quantity), _number(reference.values[-1:]), *changes])
    last = max(i for key, curve in run_curves.items() if key.place == "eval" for i in curve.iterations)
    note = (
        "Each policy standalone, given the query only. First evaluation → last evaluation (at iteration "
        f"{last}), and the difference."
    )
    if distance := run_curves.get(Key("all", "policies", "ngram_distance")):
        name = label("ngram_distance")
        change = _change(distance.values[:1], distance.values[-1:])
        note += f" {name[0].upper()}{name[1:]} of the policies: {change}."
    table = html.table(["", "reference", *names], rows, kind="numbers")
    return [*parts, table, html.paragraph(note, muted=True)]


def _data(environment: Mapping[str, Any]) -> list[html.Markup]:
    """Return the number of queries and what was left out; empty if the run has not recorded it."""
    data = environment.get("data")
    if data is None:
        return []
    line = f"Queries: {data['train']:,} to train on, {data['test']:,} held out, of which this run evaluates "
    line += f"on the first {data['evaluated']:,}."
    lines = [line, *(f"{reason}." for reason in data["left_out"])]
    return [html.paragraph(text, muted=True) for text in lines]


def _training(run_curves: Curves) -> list[html.Markup]:
    """Return the table of training metrics by seat, at the start and at the end."""
    shown = [quantity for quantity in quantities(run_curves, seats(run_curves)) if quantity in SEATED]
    if not shown:
        return []
    window = min(WINDOW, len(seatings(run_curves)) // 2)
    rows = []
    for quantity in shown:
        values = [_seat_values(run_curves, seat, quantity) for seat in seats(run_curves)]
        changes = [_change(v[:window], v[-window:]) if window else _number(v) for v in values]
        rows.append([label(quantity), *changes])
    note = "Means over one iteration, whichever policy sat in the seat."
    if window:
        span = (
            f"the first and the last {window} iterations"
            if window > 1
            else "the first and the last iteration"
        )
        note = f"Means over {span}, whichever policy sat in the seat."
    table = html.table(["", *seats(run_curves)], rows, kind="numbers")
    return [html.heading("Training, by seat"), table, html.paragraph(note, muted=True)]


def _samples(samples: Sequence[Mapping[str, Any]]) -> list[html.Markup]:
    """Return tables of sample games: those of the last evaluation open, earlier ones closed."""
    if not samples:
        return []
    evaluated = [row for row in samples if "reference" in row] or samples
    times = sorted({row["iteration"] for row in evaluated})
    shown = {times[place * (len(times) - 1) // (SAMPLE_TIMES - 1)] for place in range(SAMPLE_TIMES)}
    parts = [html.heading("Samples")]
    for time in sorted(shown, reverse=True):
        rows = [row for row in samples if row["iteration"] == time][:SAMPLE_ROWS]
        parts.append(html.collapsible(f"Iteration {time}", _sample_table(rows), is_open=time == times[-1]))
    return parts


def _sample_table(rows: Sequence[Mapping[str, Any]]) -> html.Markup:
    """Return a table: query | reference | one column per seat, with its score | each policy standalone."""
    first = rows[0]
    seat_names, seating = list(first["score"]), first.get("seating", {})
    reference = ["reference"] if "reference" in first else []
    standalone = [name for name in first.get("eval", {}) if name != "reference"]
    seat_heads = [f"{seat} ({seating[seat]})" if seat in seating else seat for seat in seat_names]
    body = []
    for row in rows:
        cells = [row["query"], *(_text(row[name]) for name in reference)]
        for seat in seat_names:
            score = row["score"][seat]
            cells.append(html.scored(_text(row[seat]), _number([] if score is None else [score])))
        body.append([*cells, *(_text(row["eval"][name]) for name in standalone)])
    head = ["query", *reference, *seat_heads, *(f"{name} standalone" for name in standalone)]
    return html.table(head, body, kind="samples")


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[html.Markup]:
    """Return the table of responses that a judge failed on; empty if there are none."""
    if not rows:
        return []
    fields = ("iteration", "judge", "failure", "query", "response")
    body = [[_text(str(row[name])) for name in fields] for row in rows[:SAMPLE_ROWS]]
    table = html.table(list(fields), body, kind="samples")
    return [html.collapsible("Responses that a judge failed on", table)]


def _files(run: Path) -> list[html.Markup]:
    """Return the contents of the configuration and environment files."""
    paths = [run / name for name in ("config.yaml", "environment.json") if (run / name).is_file()]
    contents = [
        html.collapsible(path.name, html.preformatted(path.read_text(encoding="utf-8"))) for path in paths
    ]
    return [html.heading("Configuration and environment"), *contents] if contents else []


def _seat_values(run_curves: Curves, seat: str, quantity: str) -> list[float]:
    """Return the values of a seat by iteration, whichever policy sat in it."""
    of_seat = [curve for key, curve in run_curves.items() if (key.place, key.quantity) == (seat, quantity)]
    points = sorted(point for curve in of_seat for point in zip(*curve, strict=True))
    return [value for _, value in points]


def _text(response: str) -> html.Markup:
    """Return a response without surrounding white space; `(empty)` if nothing is left."""
    text = response.strip()
    return html.inline(text) if text else html.Markup('<span class="score">(empty)</span>')


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _number(values: Sequence[float]) -> str:
    """Format the mean of the finite values with three digits; a dash if there are none."""
    mean = _mean(values)
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.3f}" if abs(mean) < 1000 else f"{mean:.3g}"


def _change(first: Sequence[float], last: Sequence[float]) -> str:
    """Format two means and their difference."""
    change = _mean(last) - _mean(first)
    return f"{_number(first)} → {_number(last)}" + (f"  ({change:+.3f})" if math.isfinite(change) else "")
