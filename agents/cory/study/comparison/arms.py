"""Arms read off run directories: runs with equal settings but for the seed."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory.evaluation.records import IRRELEVANT
from cory.report.groups import differing, written
from cory.study.plan import EQUAL, PlannedRun, completed, settings_in
from cory.tracking.tracker import METRICS
from cory_env.nearest import did_you_mean_path

CHANGE_NO_NUMBER = frozenset(IRRELEVANT) - {"evaluation.queries"}
"""Settings of judge and evaluation in which compared runs may differ."""

NO_ARMS = ("seed", "memory")
"""Settings that make no other arm: memory is what an accelerator had free, and changes last digits."""

MAX_NAME = 60
SEED = re.compile(r"[-_/.]?seed[-_=]?\d+$")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs with equal settings but for the seed."""

    name: str
    settings: Mapping[str, Any]
    """All settings but the seed, flat."""
    runs: Mapping[int, Path]
    """Run directories by seed."""

    def planned(self, seed: int) -> PlannedRun:
        """The run with a seed, as a study has it."""
        settings = {**self.settings, "seed": seed}
        return PlannedRun(arm=self.name, task=str(self.settings["task"]), seed=seed, settings=settings)


def common_parent(folders: Sequence[Path]) -> Path:
    """The folder that holds all run directories."""
    return Path(os.path.commonpath([folder.resolve().parent for folder in folders]))


def arms_of(folders: Sequence[Path]) -> list[Arm]:
    """The arms of run directories in the order given; ValueError as in `write_comparison`."""
    found: dict[str, tuple[dict[str, Any], dict[int, Path]]] = {}
    for folder in folders:
        stored = settings_in(folder)
        if not stored or not (folder / METRICS).is_file():
            raise ValueError(
                f"{folder} holds no config.yaml and {METRICS}; name the folders of runs"
                + did_you_mean_path(folder)
            )
        seed = int(stored.pop("seed", 0))
        runs = found.setdefault(repr(sorted(stored.items())), (stored, {}))[1]
        _add(runs, seed, folder)
    merged: dict[str, tuple[dict[str, Any], dict[int, Path]]] = {}
    for settings, runs in found.values():  # settings that one version lacks are at their defaults
        whole = {name: value for name, value in completed(settings).items() if name not in NO_ARMS}
        of_arm = merged.setdefault(repr(sorted(whole.items())), (whole, {}))[1]
        for seed, folder in runs.items():
            _add(of_arm, seed, folder)
    names = _names(list(merged.values()), common_parent(folders))
    return [
        Arm(name=name, settings=settings, runs=dict(sorted(runs.items())))
        for name, (settings, runs) in zip(names, merged.values(), strict=True)
    ]


def unlike_evaluations(arms: Sequence[Arm]) -> list[str]:
    """What makes the arms incomparable: other settings of task, judge or evaluation than the first one's.

    ValueError for arms of several tasks.
    """
    first, lines = arms[0], []
    for arm in arms[1:]:
        names = [
            name
            for name in differing([first.settings, arm.settings])
            if name.split(".")[0] in EQUAL and name not in CHANGE_NO_NUMBER
        ]
        values = {name: [one.settings.get(name) for one in (first, arm)] for name in names}
        folders = [next(iter(one.runs.values())) for one in (first, arm)]
        if "task" in values:
            tasks = " and ".join(map(repr, values["task"]))
            raise ValueError(
                f"{folders[0]} and {folders[1]} cannot be compared: task is {tasks}; name runs of one task"
            )
        if names:
            listed = "; ".join(
                f"{name} is {ours!r} and {theirs!r}" for name, (ours, theirs) in values.items()
            )
            lines.append(
                f"{folders[0]} and {folders[1]} are not evaluated alike, and their numbers cannot be "
                f"compared: {listed}."
            )
    return lines


def unequal_lengths(arms: Sequence[Arm]) -> list[str]:
    """A line on runs of several lengths; nothing if all are to have as many iterations."""
    lengths = {arm.name: int(arm.settings["iterations"]) for arm in arms}
    if len(set(lengths.values())) == 1:
        return []
    listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
    return [
        f"The runs are of unequal length (iterations: {listed}): each has its numbers at its own end, after "
        "more or less training."
    ]


def _names(arms: Sequence[tuple[Mapping[str, Any], Mapping[int, Path]]], parent: Path) -> list[str]:
    """Names of arms: their folders without the seed where those tell them apart, else what differs."""
    folders = [
        {SEED.sub("", folder.resolve().relative_to(parent).as_posix()) for folder in runs.values()}
        for _, runs in arms
    ]
    stems = [min(names) for names in folders]
    if all(len(names) == 1 for names in folders) and len({*stems, ""}) == len(stems) + 1:
        while len({stem.rpartition("/")[2] for stem in stems}) == 1 and all("/" in stem for stem in stems):
            stems = [stem.rpartition("/")[0] for stem in stems]
        return stems
    names = differing([settings for settings, _ in arms])
    by_settings = [written(settings, names) for settings, _ in arms]
    if not names:
        return [str(arms[0][0]["task"])]
    return [
        name if 0 < len(name) <= MAX_NAME else f"arm {place}"
        for place, name in enumerate(by_settings, start=1)
    ]


def _add(runs: dict[int, Path], seed: int, folder: Path) -> None:
    if seed in runs:
        raise ValueError(f"{runs[seed]} and {folder} have the same settings and seed; name one of them")
    runs[seed] = folder
