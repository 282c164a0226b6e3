"""What a run was and which of its checkpoints is the best, for the head of the report page."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.report import html
from cory.runtime.files import read_json
from cory.runtime.yaml_files import read_yaml
from cory.tracking.curves import Curves, exchanges, policies, seatings, seats


def read_config(run: Path) -> dict[str, Any]:
    """The settings in `config.yaml` by flag name; empty if there are none."""
    path = run / "config.yaml"
    try:
        config = read_yaml(path) if path.is_file() else None
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def read_environment(run: Path) -> dict[str, Any]:
    """The content of `environment.json`; empty without the file."""
    path = run / "environment.json"
    return read_json(path) if path.is_file() else {}


def head(config: Mapping[str, Any], curves: Curves) -> list[html.Markup]:
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


def commands(environment: Mapping[str, Any]) -> list[html.Markup]:
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


def best_checkpoint(run: Path, config: Mapping[str, Any]) -> list[html.Markup]:
    """A sentence on the best checkpoint; empty if none was recorded."""
    try:
        best = json.loads((run / "checkpoints/best.json").read_text(encoding="utf-8"))
        iteration, score = int(best["iteration"]), float(best["score"])
    except (OSError, ValueError, TypeError, KeyError):
        return []
    exported = "which is exported" if config.get("export_best") else "which --export-best exports"
    kind = html.alert if iteration == 0 else html.paragraph
    hurt = "Training hurt: by" if iteration == 0 else "By"
    return [
        kind(
            f"{hurt} combined reward on the {best.get('split', 'validation')} split, iteration {iteration} "
            f"was best ({score:.3f}, checkpoints/step-{iteration:06d}), {exported}."
        )
    ]
