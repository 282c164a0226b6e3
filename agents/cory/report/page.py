"""Report page of a run, made from the files in its directory: tables, plots and samples.

Works on unfinished runs too: missing parts are left out or reported as missing.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cory.report import html, samples
from cory.report.overview import best_checkpoint, commands, head, read_config, read_environment
from cory.report.summary import change, number
from cory.runtime.files import check_output, write_text
from cory.tracking.curves import Curves, policies, quantities, seatings, seats
from cory.tracking.labels import label
from cory.tracking.tracker import METRICS, NO_CURVE, SAMPLES, Key, curves, read, read_samples
from cory_env.nearest import did_you_mean_path

if TYPE_CHECKING:
    from cory.report.figures import Plot

WINDOW = 5
"""Iterations that the first and the last training metrics are averaged over, as a single one is noisy; half
of the iterations in shorter runs."""

SEATED = (
    "task_reward", "score_std", "queries_without_spread", "payoff", "kl", "combined_reward",
    "response_length", "eos_share", "empty_share", "accuracy", "honesty", "belief",
)  # fmt: skip
"""Quantities in the table of the seats; the others are in a plot."""


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write `run/report.html` and `run/plots/*.png`; return the page's path.

    What changed stands first, details follow. The page embeds its figures and style, loads nothing, and
    shows model text as text. With `out` only the page is written, to that file, and nothing into the run.
    ValueError if the directory is not a run.
    """
    if out is None:
        return _write(run, run / "report.html", run / "plots")
    check_output(out, html.GENERATOR)
    with TemporaryDirectory() as plots:
        return _write(run, out, Path(plots))


def _write(run: Path, path: Path, folder: Path) -> Path:
    """Write the page to `path`, and its figures into `folder` too."""
    from cory.report import evaluation, probe, summary
    from cory.report.plots import draw

    if not (run / METRICS).is_file():
        raise ValueError(
            f"{run} holds no {METRICS}; name the folder of a run, such as runs/<name>{did_you_mean_path(run)}"
        )
    logged = read(run)
    run_curves = curves(logged)
    rows = read_samples(run / SAMPLES) if (run / SAMPLES).is_file() else []
    games = [row for row in rows if "failure" not in row]
    config, environment = read_config(run), read_environment(run)
    continues = config.get("task") == "reviews"  # the responses of other tasks answer their queries
    plots = {plot.path.stem: _figure(plot) for plot in draw(run_curves, folder)}
    parts = [
        *summary.sections(logged, run_curves, config, environment),
        *samples.first(games, continues=continues, anchor="samples"),
        *commands(environment),
        *_held_out(run_curves),
        *_data(environment),
        *(part for name in ("held_out", "pass_at_k") for part in plots.get(name, ())),
        *evaluation.sections(run, config),
        *probe.sections(run),
        *_training(run_curves),
        *(part for name in ("training", "team", "updates") for part in plots.get(name, ())),
        *samples.sections(games, continues=continues),
        *samples.failures([row for row in rows if "failure" in row]),
        *_files(run),
    ]
    name = html.heading(f"CORY run: {run.resolve().name}", level=1)
    first = [
        *best_checkpoint(run, config),
        *summary.badges(run_curves, config, environment, run),
        *plots.get("objective", ())[1:],
    ]
    parts = [name, *first, *head(config, run_curves), html.contents(parts), *parts]
    write_text(path, html.page(f"CORY: {run.resolve().name}", parts))
    return path


def _figure(plot: "Plot") -> list[html.Markup]:
    """A figure under its title."""
    from cory.report.figures import on_page

    anchor = plot.path.stem if plot.path.stem in ("team", "updates") else ""
    title = html.heading(plot.title, level=2 if anchor else 3, anchor=anchor)
    return [title, on_page(plot.figure, title=plot.title, caption=plot.caption)]


def _held_out(run_curves: Curves) -> list[html.Markup]:
    """The table of standalone evaluations: first and last of each policy, and the reference."""
    shown = quantities(run_curves, ["eval"])
    if not shown:
        return []
    parts = [html.heading("Held-out evaluation", anchor="held-out")]
    evaluated = {key.policy for key in run_curves if key.place == "eval"}
    names = [name for name in policies(run_curves) if name in evaluated]
    rows = []
    for quantity in shown:
        reference = run_curves.get(Key("eval", "reference", quantity), NO_CURVE)
        of_policies = [run_curves.get(Key("eval", name, quantity), NO_CURVE) for name in names]
        changes = [change(curve.values[:1], curve.values[-1:]) for curve in of_policies]
        rows.append([label(quantity), number(reference.values[-1:]), *changes])
    last = max(i for key, curve in run_curves.items() if key.place == "eval" for i in curve.iterations)
    note = (
        "Each policy standalone, given the query only. First evaluation → last evaluation (at iteration "
        f"{last}), and the difference."
    )
    table = html.table(["", "reference", *names], rows, kind="numbers")
    return [*parts, table, html.paragraph(note, muted=True)]


def _data(environment: Mapping[str, Any]) -> list[html.Markup]:
    """The number of queries and what was left out; empty if the run has not recorded it."""
    data = environment.get("data")
    if data is None:
        return []
    line = f"Queries: {data['train']:,} to train on, {data['test']:,} held out, of which this run evaluates "
    line += f"on the first {data['evaluated']:,}."
    lines = [line, *(f"{reason}." for reason in data["left_out"])]
    return [html.paragraph(text, muted=True) for text in lines]


def _training(run_curves: Curves) -> list[html.Markup]:
    """The table of training metrics by seat, at the start and at the end."""
    shown = [quantity for quantity in quantities(run_curves, seats(run_curves)) if quantity in SEATED]
    if not shown:
        return []
    window = min(WINDOW, len(seatings(run_curves)) // 2)
    rows = []
    for quantity in shown:
        values = [_seat_values(run_curves, seat, quantity) for seat in seats(run_curves)]
        changes = [change(v[:window], v[-window:]) if window else number(v) for v in values]
        rows.append([label(quantity), *changes])
    note = f"Means over the first and the last {max(1, window)} iterations, whichever policy sat in the seat."
    table = html.table(["", *seats(run_curves)], rows, kind="numbers")
    return [html.heading("Training, by seat", anchor="training"), table, html.paragraph(note, muted=True)]


def _files(run: Path) -> list[html.Markup]:
    """The contents of the configuration and environment files."""
    paths = [run / name for name in ("config.yaml", "environment.json") if (run / name).is_file()]
    contents = [
        html.collapsible(path.name, html.preformatted(path.read_text(encoding="utf-8"))) for path in paths
    ]
    return [html.heading("Settings and environment", anchor="settings"), *contents] if contents else []


def _seat_values(run_curves: Curves, seat: str, quantity: str) -> list[float]:
    """The values of a seat by iteration, whichever policy sat in it."""
    seat_curves = [
        curve for key, curve in run_curves.items() if (key.place, key.quantity) == (seat, quantity)
    ]
    points = sorted(point for curve in seat_curves for point in zip(*curve, strict=True))
    return [value for _, value in points]
