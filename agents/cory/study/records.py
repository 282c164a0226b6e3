"""What a finished run contributes to a study's results, read from its run directory."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cory.evaluation import averaging
from cory.evaluation.collapse import SIGNS
from cory.evaluation.records import environment_of
from cory.runtime.files import read_json
from cory.runtime.provenance import LEARNING_VERSION
from cory.runtime.sources import changed, sources_of
from cory.study.metric import GAME
from cory.study.plan import PlannedRun, changes, settings_in
from cory.tracking.curves import NOT_SEATS
from cory.tracking.tracker import METRICS, Key, read, read_lines, split

WINDOW, WINDOWS = 10, 20
"""Iterations of a window, more where that many windows would not hold the run."""

CROSS, STRANGERS = "cross", "strangers"
"""Folder in a run directory of evaluations on other tasks, a file for each, and with strangers."""

T = TypeVar("T")

Points = list[list[float]]
"""[[iteration, value], ...]"""


def finished(folder: Path, planned: PlannedRun) -> bool:
    """Whether the run was trained to its end: every iteration once, and the evaluation after the last.

    A run that is evaluated only has no iterations, and the evaluation.
    """
    iterations = planned.iterations
    if not (folder / METRICS).is_file() or (planned.is_trained and not (folder / "policies").is_dir()):
        return False
    rows = read_lines(folder / METRICS)
    trained = [row["iteration"] for row in rows if "time/update/seconds" in row]
    evaluated = any(
        row["iteration"] == iterations and any(key.startswith(("eval/", "team/")) for key in row)
        for row in rows
    )
    return evaluated and trained == (list(range(iterations)) if planned.is_trained else [])


def seconds_of(rows: Iterable[Mapping[str, Any]]) -> float:
    """The seconds that a run has taken, by its metrics."""
    return float(sum(value for row in rows for key, value in row.items() if key.startswith("time/")))


def log_of(folder: Path) -> Path:
    """The file beside a run directory with what its process printed."""
    return folder.with_name(f"{folder.name}.log")


def why_another(settings: Mapping[str, Any], begun: Iterable[Mapping[str, Any]], planned: PlannedRun) -> str:
    """Why a run is not the planned one: settings, learning version or sources; empty if it is.

    `begun` says of each time it was begun or resumed the version, and the sources of what settings name.
    """
    if others := changes(settings, planned.settings):
        return f"other settings: {'; '.join(others[:5])}"
    for start in begun:
        if (version := start.get("learning_version", 1)) != LEARNING_VERSION:
            return f"learning version {version}, now {LEARNING_VERSION}"
        if words := changed(start.get("sources", {}), planned.sources):
            return f"{words} since seed {planned.seed} was trained"
    return ""


def why_holds_another(folder: Path, planned: PlannedRun) -> str:
    """Why a directory holds another run (`why_another`); empty for the same run, and for none."""
    settings = settings_in(folder)
    if settings is None:
        return ""
    made = environment_of(folder) or {"sources": planned.sources}  # killed before it began
    return why_another(settings, (made, *made.get("resumed", ())), planned)


def record(planned: PlannedRun, folder: Path) -> dict[str, Any]:
    """The run as a row of `runs` in the results; one that is unfinished as far as it was trained."""
    rows = read(folder)
    is_finished = finished(folder, planned)
    iterations = planned.iterations if is_finished else sum("time/update/seconds" in row for row in rows)
    made = environment_of(folder)
    evaluated = evaluations(rows)
    team = evaluations(rows, place="team")
    return {
        "arm": planned.arm,
        "task": planned.task,
        "seed": planned.seed,
        **({"sources": dict(planned.sources)} if planned.sources else {}),
        "learning_version": made.get("learning_version", 1),
        "status": "finished" if is_finished else "unfinished",
        "seconds": round(seconds_of(rows), 1),
        "commit": made.get("commit"),
        "processor": (not planned.is_on_cpu and made.get("gpu")) or made.get("processor"),
        "iterations": iterations,
        "collapsed_at": collapsed_at(evaluated),
        "budget": budget(rows, planned.settings),
        "eval": evaluated,
        "team": team | with_strangers(planned, folder, team.get("all", {})),
        "game": game(rows, iterations),
        "on": cross_evaluations(planned, folder),
    }


def evaluated_after(folder: Path, name: str) -> dict[str, Any]:
    """What was evaluated after training: on the task of this name, or with `STRANGERS`; empty if nothing."""
    path = folder / CROSS / f"{name}.json"
    return read_json(path) if path.is_file() else {}


def cross_evaluations(planned: PlannedRun, folder: Path) -> dict[str, dict[str, Any]]:
    """By other task: the evaluations on it, as in `evaluations`, by the plan's settings, and commit."""
    evaluated = {}
    for task, settings in planned.cross.items():
        stored = evaluated_after(folder, task)
        same = stored and not changes({"seed": 0, **stored["settings"]}, {"seed": 0, **settings})
        if same and not changed(stored.get("sources", {}), sources_of(settings)):
            rows = [{"iteration": planned.iterations, **stored["metrics"]}]
            evaluated[task] = {"commit": stored["commit"], "eval": evaluations(rows)}
    return evaluated


def with_strangers(
    planned: PlannedRun, folder: Path, team: Mapping[str, Points]
) -> dict[str, dict[str, Points]]:
    """The games with the plan's strangers, and the `gap` by which the run's own team is ahead; or nothing."""
    stored = evaluated_after(folder, STRANGERS)
    if not planned.strangers or not set(planned.strangers) <= set(stored.get("seeds", ())):
        return {}
    met = evaluations([{"iteration": planned.iterations, **stored["metrics"]}], place="team")["all"]
    met.pop("combined_reward", None)  # by the KL coefficient of the arm, and no other can be had of a sum
    gap = {name: [[end, team[name][-1][1] - value]] for name, [(end, value)] in met.items()}
    return {"strangers": met, "gap": gap}


def is_complete(planned: PlannedRun, row: Mapping[str, Any]) -> bool:
    """Whether a row has the evaluations on all other tasks of the plan, and with strangers."""
    met = not planned.strangers or "strangers" in row["team"]
    return met and set(planned.cross) <= set(row["on"])


def evaluations(rows: Iterable[Mapping[str, Any]], *, place: str = "eval") -> dict[str, dict[str, Points]]:
    """Standalone evaluations: policy -> quantity -> points; the reference is one of the policies.

    With `place` team, those of games: seat, or `all` for the team, -> quantity -> points.
    """
    by_name: dict[str, dict[str, Points]] = {}
    for row in rows:
        for key, value in _metrics(row):
            if key.place == place:
                points = by_name.setdefault(key.policy, {}).setdefault(key.quantity, [])
                points.append([row["iteration"], value])
    return by_name


def game(rows: Iterable[Mapping[str, Any]], iterations: int) -> dict[str, dict[str, Points]]:
    """Training metrics of each seat: means over windows that end at the last iteration."""
    window = max(WINDOW, -(-iterations // WINDOWS))
    sums: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        end = iterations - (iterations - 1 - row["iteration"]) // window * window
        for key, value in _metrics(row):
            if key.place not in NOT_SEATS and key.quantity in GAME:
                sums.setdefault((key.place, key.quantity, end), []).append(value)
    by_seat: dict[str, dict[str, Points]] = {}
    for (seat, quantity, end), values in sorted(sums.items(), key=lambda item: item[0][2]):
        by_seat.setdefault(seat, {}).setdefault(quantity, []).append([end, sum(values) / len(values)])
    return by_seat


def budget(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, int]:
    """Games and scored responses of training, evaluations not counted."""
    games = int(settings["batch"]) * sum("time/update/seconds" in row for row in rows)
    return {"games": games, "judge_calls": games * int(settings["seats"])}


def collapsed_at(evaluated: Mapping[str, Mapping[str, Points]]) -> dict[str, int | None]:
    """By trained policy: the first evaluation with a sign of collapse (`cory.evaluation.collapse`)."""
    first = {}
    for policy in trained(evaluated):
        quantities, reference = evaluated[policy], reference_of(evaluated, policy)
        signs = [sign for sign in SIGNS if sign.quantity in quantities and reference.get(sign.quantity)]
        collapsed = (
            int(iteration)
            for sign in signs
            for iteration, value in quantities[sign.quantity]
            if sign.present(value, reference[sign.quantity][0][1])
        )
        first[policy] = min(collapsed, default=None)
    return first


def trained(evaluated: Mapping[str, object]) -> list[str]:
    """The names of evaluated policies that are neither a reference nor the mean of the others."""
    return [name for name in evaluated if name != averaging.NAME and not name.startswith("reference")]


def references(evaluated: Mapping[str, T]) -> list[T]:
    """The evaluations of references: one, or that of each policy where they start from different models."""
    return [quantities for name, quantities in evaluated.items() if name.startswith("reference")]


def reference_of(evaluated: Mapping[str, Mapping[str, Points]], policy: str) -> Mapping[str, Points]:
    """The evaluation of a policy's own reference, or of the one of all policies; empty without either."""
    return evaluated.get(f"reference_{policy}", evaluated.get("reference", {}))


def _metrics(row: Mapping[str, Any]) -> Iterable[tuple[Key, float]]:
    return ((split(k), v) for k, v in row.items() if k != "iteration" and not math.isnan(v))
