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
from cory.tracking.tracker import NO_CURVE, Key


def read_config(run: Path) -> dict[str, Any]:
    """Return the settings in `config.yaml` by flag name; empty if there are none."""
    path = run / "config.yaml"
    try:
        config = read_yaml(path) if path.is_file() else None
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def read_environment(run: Path) -> dict[str, Any]:
    """Return the content of `environment.json`; empty without the file."""
    path = run / "environment.json"
    return read_json(path) if path.is_file() else {}


def head(config: Mapping[str, Any], curves: Curves) -> list[html.Markup]:
    """Return lines on task, judge, model and seconds; on iterations, seats and policies."""
    lines = [_facts(config, curves), _progress(config, curves)]
    return [html.paragraph(line, muted=True) for line in lines if line]


def _progress(config: Mapping[str, Any], curves: Curves) -> str:
    """Return one line: iterations done, seats, policies, number of role exchanges."""
    played, planned = _played(curves), config.get("iterations")
    unfinished = f" of {planned} (not finished)" if isinstance(planned, int) and played < planned else ""
    if lost := played - len(seatings(curves)):
        unfinished += f" (the metrics of {lost} are lost)"
    seat_names, policy_names = (", ".join(of(curves)) or "none yet" for of in (seats, policies))
    return (
        f"Iterations: {played}{unfinished}. Seats: {seat_names}. Policies: {policy_names}. "
        f"Role exchanges: {len(exchanges(curves))}."
    )


def _played(curves: Curves) -> int:
    """Return the number of iterations that have been played, those without metrics too."""
    return max(seatings(curves), default=-1) + 1


def _facts(config: Mapping[str, Any], curves: Curves) -> str:
    """Return one line: task, judge, model, algorithm, seconds of all phases."""
    task, judge = config.get("task"), config.get("judge")
    kind, models = config.get("policy.kind"), config.get("policy.models") or [config.get("policy.model")]
    facts = {
        "Task": task,
        "Judge": judge if task == "reviews" or judge != "pocket" else None,  # other tasks score by themselves
        "Model": ", ".join(models) if all(models) and kind != "table" else None,  # tables start from none
        "Policy": kind,
        "Algorithm": config.get("algorithm"),
    }
    seconds = [x for key, of in curves.items() if key.place == "time" for x in of.values if math.isfinite(x)]
    facts["Seconds"] = f"{sum(seconds):,.1f}" if seconds else None
    return " ".join(f"{name}: {value}." for name, value in facts.items() if value)


def commands(environment: Mapping[str, Any]) -> list[html.Markup]:
    """Return the command that started the run, to copy, and those that resumed it."""
    starts = [("Command", environment)]
    starts += [(f"Resumed at iteration {one['iteration']}", one) for one in environment.get("resumed", ())]
    found = [(title, _command(start["command"])) for title, start in starts if "command" in start]
    if not found:
        return []
    parts = [html.heading("Command", anchor="command"), html.command(found[0][1])]
    return parts + [html.paragraph(f"{title}: {text}", muted=True) for title, text in found[1:]]


def _command(words: Sequence[str]) -> str:
    """Return a command as one types it; `python -m cory.cli` is recorded as `__main__.py`."""
    program = "cory" if words[:1] == ["__main__.py"] else shlex.join(words[:1])
    return " ".join([program, shlex.join(words[1:])]).strip()


def best_checkpoint(run: Path, config: Mapping[str, Any], curves: Curves) -> list[html.Markup]:
    """Return a sentence on the best checkpoint and the exported policies; empty if none was recorded."""
    try:
        best = json.loads((run / "checkpoints/best.json").read_text(encoding="utf-8"))
        iteration, score = int(best["iteration"]), float(best["score"])
    except (OSError, ValueError, TypeError, KeyError):
        return []
    split = best.get("split", "validation")
    text = (
        f"By held-out combined reward on the {split} split, averaged over the policies, iteration "
        f"{iteration} was best ({score:.3f}, checkpoints/step-{iteration:06d}); "
    )
    exported = _exported(run, config, curves, best=iteration)
    if exported is None:
        return [html.paragraph(f"{text}no policies are exported yet.")]
    if exported == iteration:
        return [html.paragraph(f"{text}the exported policies are of that iteration.")]
    found = _score(curves, split, exported)
    text += f"the exported policies are of iteration {exported}{'' if found is None else f' ({found:.3f})'}. "
    return [html.paragraph(f"{text}With --export-best the best are exported.")]


def _exported(run: Path, config: Mapping[str, Any], curves: Curves, *, best: int) -> int | None:
    """Return the iteration of the policies in `policies/`; None if the run is unfinished."""
    planned = config.get("iterations")
    finished = isinstance(planned, int) and _played(curves) >= planned
    if not finished or not any((run / "policies").glob("*/")):
        return None
    return best if config.get("export_best") else planned


def _score(curves: Curves, split: str, iteration: int) -> float | None:
    """Return the combined reward on `split` at an iteration, averaged over the policies; None without it."""
    scores = []
    for name in policies(curves):
        curve = curves.get(Key(split, name, "combined_reward"), NO_CURVE)
        scores += [value for i, value in zip(*curve, strict=True) if i == iteration]
    return sum(scores) / len(scores) if scores else None
