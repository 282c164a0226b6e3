"""Report page of a run, made from the files in its directory: tables, plots and samples.

Works on unfinished runs too: missing parts are left out or reported as missing.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.evaluation import records
from cory.report import html, samples
from cory.report.summary import change, number
from cory.runtime.files import check_output, write_text
from cory.runtime.yaml_files import read_mapping
from cory.tracking.curves import Curves, exchanges, policies, quantities, references, seatings, seats
from cory.tracking.labels import defined, label
from cory.tracking.tracker import NO_CURVE, Key, check_run, curves, read, read_samples


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
    from cory.report.figures import section
    from cory.report.plots import draw

    check_run(run)
    logged = read(run)
    run_curves = curves(logged)
    games, failures = read_samples(run)
    config, environment = read_config(run), records.environment_of(run)
    continues = config.get("task") == "reviews"  # the responses of other tasks answer their queries
    plots = {}
    for plot in draw(run_curves, folder):
        anchor = plot.path.stem if plot.path.stem in ("training", "team", "updates") else ""
        plots[plot.path.stem] = section(plot, level=2 if anchor else 3, anchor=anchor)
    parts = [
        *summary.sections(logged, run_curves, config, environment),
        *samples.first(games, continues=continues, anchor="samples"),
        *_commands(environment),
        *_held_out(run_curves),
        *_data(environment),
        *(part for name in ("held_out", "pass_at_k") for part in plots.get(name, ())),
        *evaluation.sections(run, config),
        *probe.sections(run),
        *(part for name in ("training", "team", "updates") for part in plots.get(name, ())),
        *samples.sections(games, continues=continues),
        *samples.failures(failures),
        *_files(run),
    ]
    name = html.heading(f"CORY run: {run.resolve().name}", level=1)
    first = [
        *_best_checkpoint(run),
        *summary.badges(run_curves, config, environment, run),
        *plots.get("objective", ())[1:],
    ]
    meanings = html.definitions(defined(quantities(run_curves, [*seats(run_curves), "eval", "team"])))
    parts = [name, *first, *_head(config, run_curves), html.contents(parts), *meanings, *parts]
    write_text(path, html.page(f"CORY: {run.resolve().name}", parts))
    return path


def read_config(run: Path) -> dict[str, Any]:
    """The settings in `config.yaml` by flag name; empty if there are none."""
    try:
        return read_mapping(run / "config.yaml", "settings file")
    except ValueError:
        return {}


def _head(config: Mapping[str, Any], curves: Curves) -> list[html.Markup]:
    """A line on task, judge, model and seconds; one on iterations, seats and policies."""
    played, planned = max(seatings(curves), default=-1) + 1, config.get("iterations", 0)
    unfinished = f" of {planned} (not finished)" if played < planned else ""
    seat_names, policy_names = (", ".join(names(curves)) or "none yet" for names in (seats, policies))
    lines = [
        _facts(config, curves),
        f"Iterations: {played}{unfinished}. Seats: {seat_names}. Policies: {policy_names}. "
        f"Role exchanges: {len(exchanges(curves))}.",
    ]
    return [html.paragraph(line, muted=True) for line in lines if line]


def _facts(config: Mapping[str, Any], curves: Curves) -> str:
    task, judge = config.get("task"), config.get("judge")
    kind, models = config.get("policy.kind"), config.get("policy.models") or [config.get("policy.model")]
    seconds = [x for key, of in curves.items() if key.place == "time" for x in of.values if math.isfinite(x)]
    facts = {
        "Task": task,
        "Judge": judge if task == "reviews" or judge != "pocket" else None,  # other tasks score by themselves
        "Model": ", ".join(models) if all(models) and kind != "table" else None,  # tables start from none
        "Policy": kind,
        "Algorithm": config.get("algorithm"),
        "Seconds": f"{sum(seconds):,.1f}" if seconds else None,
    }
    return " ".join(f"{name}: {value}." for name, value in facts.items() if value)


def _commands(environment: Mapping[str, Any]) -> list[html.Markup]:
    """The command that started the run, to copy, and those that resumed it."""
    if "command" not in environment:
        return []
    parts = [html.heading("Command", anchor="command"), html.command(_command(environment["command"]))]
    return parts + [
        html.paragraph(f"Resumed at iteration {start['iteration']}: {_command(start['command'])}", muted=True)
        for start in environment.get("resumed", ())
    ]


def _command(words: Sequence[str]) -> str:
    """A command as one types it; `python -m cory.cli` is recorded as `__main__.py`."""
    program = "cory" if words[:1] == ["__main__.py"] else shlex.join(words[:1])
    return " ".join([program, shlex.join(words[1:])]).strip()


def _best_checkpoint(run: Path) -> list[html.Markup]:
    """A sentence on the best checkpoint; empty if none was recorded."""
    if (best := records.best_of(run)) is None:
        return []
    iteration, score = best["iteration"], best["score"]
    is_exported = records.export_of(run).get("after") == iteration
    exported = "which is exported" if is_exported else "which --export-best exports"
    kind = html.alert if iteration == 0 else html.paragraph
    hurt = "Training hurt: by" if iteration == 0 else "By"
    return [
        kind(
            f"{hurt} combined reward on the validation split, iteration {iteration} "
            f"was best ({score:.3f}, checkpoints/step-{iteration:06d}), {exported}."
        )
    ]


def _held_out(run_curves: Curves) -> list[html.Markup]:
    """The table of standalone evaluations: first and last of each policy, and the reference."""
    shown = quantities(run_curves, ["eval"])
    if not shown:
        return []
    parts = [html.heading("Held-out evaluation", anchor="held-out")]
    evaluated = {key.policy for key in run_curves if key.place == "eval"}
    names = [name for name in policies(run_curves) if name in evaluated]
    frozen = references(run_curves)
    rows = []
    for quantity in shown:
        values = {
            name: run_curves.get(Key("eval", name, quantity), NO_CURVE).values for name in (*frozen, *names)
        }
        changes = [change(values[name][:1], values[name][-1:]) for name in names]
        rows.append([label(quantity), *(number(values[name][-1:]) for name in frozen), *changes])
    last = max(i for key, curve in run_curves.items() if key.place == "eval" for i in curve.iterations)
    note = (
        "Each policy standalone, given the query only. First evaluation → last evaluation (at iteration "
        f"{last}), and the difference."
    )
    table = html.table(["", *frozen, *names], rows, kind="numbers")
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


def _files(run: Path) -> list[html.Markup]:
    """The contents of the configuration and environment files."""
    paths = [run / name for name in ("config.yaml", "environment.json") if (run / name).is_file()]
    contents = [
        html.collapsible(path.name, html.preformatted(path.read_text(encoding="utf-8"))) for path in paths
    ]
    return [html.heading("Settings and environment", anchor="settings"), *contents] if contents else []
