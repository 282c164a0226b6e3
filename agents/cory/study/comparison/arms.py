"""Arms read off run directories: runs with equal settings but for the seed."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cory.evaluation.records import IRRELEVANT, differing, environment_of, written
from cory.runtime.sources import changed, last_of
from cory.study import records
from cory.study.plan import PlannedRun, completed, evaluated_unlike, settings_in
from cory.tracking.curves import Curves
from cory.tracking.tracker import METRICS, curves, read, read_samples
from cory_env.nearest import did_you_mean_path

CHANGE_NO_NUMBER = frozenset(IRRELEVANT) - {"evaluation.queries"}
"""Settings of judge and evaluation in which compared runs may differ."""

NO_ARMS = ("seed", "memory")
"""Settings that make no other arm: memory is what an accelerator had free, and changes last digits."""

SINGLE = "single agent"
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

    @cached_property
    def metrics(self) -> dict[int, Curves]:
        """The metrics of each run by seed."""
        return {seed: curves(read(run)) for seed, run in self.runs.items()}

    def planned(self, seed: int) -> PlannedRun:
        """A run as a study would have planned it."""
        settings = {**self.settings, "seed": seed}
        return PlannedRun(arm=self.name, task=str(settings["task"]), seed=seed, settings=settings)

    @cached_property
    def unfinished(self) -> list[int]:
        """The seeds of runs that were not trained to their end."""
        return [seed for seed, run in self.runs.items() if not records.finished(run, self.planned(seed))]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """Held-out samples of the run with the smallest seed."""
        return [row for row in read_samples(self.runs[min(self.runs)]).games if "eval" in row]


def common_parent(folders: Sequence[Path]) -> Path:
    """The folder that holds all run directories."""
    return Path(os.path.commonpath([folder.resolve().parent for folder in folders]))


def arms_of(folders: Sequence[Path]) -> list[Arm]:
    """The arms of run directories in the order given; ValueError as in `write_comparison`."""
    merged: dict[str, tuple[dict[str, Any], dict[int, Path]]] = {}
    for folder in folders:
        stored = settings_in(folder)
        if not stored or not (folder / METRICS).is_file():
            raise ValueError(
                f"{folder} holds no config.yaml and {METRICS}; name the folders of runs"
                + did_you_mean_path(folder)
            )
        seed = int(stored.pop("seed", 0))
        # Settings that one version lacks are at their defaults.
        settings = {name: value for name, value in completed(stored).items() if name not in NO_ARMS}
        runs = merged.setdefault(repr(sorted(settings.items())), (settings, {}))[1]
        if seed in runs:
            raise ValueError(f"{runs[seed]} and {folder} have the same settings and seed; name one of them")
        runs[seed] = folder
    names = _names(list(merged.values()), common_parent(folders))
    return [
        Arm(name=name, settings=settings, runs=dict(sorted(runs.items())))
        for name, (settings, runs) in zip(names, merged.values(), strict=True)
    ]


def unlike_evaluations(arms: Sequence[Arm]) -> list[str]:
    """What makes arms incomparable: files that changed between runs of one; other tasks, judges, evaluations.

    ValueError for arms of several tasks.
    """
    first, lines = arms[0], []
    sources_of_arm = []
    for arm in arms:
        by_run = {run: last_of(environment_of(run)) for run in arm.runs.values()}
        begun, sources = next(iter(by_run.items()))
        sources_of_arm.append(sources)
        lines += [
            f"Not one arm: {text} between {begun} and {run}."
            for run, other in by_run.items()
            if (text := changed(sources, other))
        ]
    for arm, theirs in zip(arms[1:], sources_of_arm[1:], strict=True):
        folders = " and ".join(str(next(iter(side.runs.values()))) for side in (first, arm))
        words = [
            f"{name} is {first.settings.get(name)!r} and {arm.settings.get(name)!r}"
            for name in evaluated_unlike(first.settings, arm.settings)
            if name not in CHANGE_NO_NUMBER
        ]
        if (tasks := [side.settings["task"] for side in (first, arm)])[0] != tasks[1]:
            listed = " and ".join(map(repr, tasks))
            raise ValueError(f"{folders} cannot be compared: task is {listed}; name runs of one task")
        shared = sources_of_arm[0].keys() & theirs.keys()
        if text := changed(*({name: of[name] for name in shared} for of in (sources_of_arm[0], theirs))):
            lines.append(f"Do not compare their scores: {text} between {folders}.")
        if words:
            lines.append(f"{folders} are not evaluated alike, so do not compare them: {'; '.join(words)}.")
    return lines


def unequal_lengths(arms: Sequence[Arm]) -> list[str]:
    """A line on runs of several lengths; nothing if all are to have as many iterations."""
    lengths = {arm.name: int(arm.settings["iterations"]) for arm in arms}
    if len(set(lengths.values())) == 1:
        return []
    listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
    return [f"The runs are of unequal length (iterations: {listed}): each has its numbers at its own end."]


def unequal_penalties(arms: Sequence[Arm]) -> list[str]:
    """A line on runs of several KL coefficients, whose own reports have other combined rewards."""
    first, *others = ((arm.name, arm.settings["kl.coef"]) for arm in arms)
    unlike = [f"{name} {coef}" for name, coef in others if coef != first[1]]
    if not unlike:
        return []
    return [
        f"Combined reward is task reward less {first[1]} KL for all, the kl.coef of {first[0]} (others: "
        f"{', '.join(unlike)})."
    ]


def _names(arms: Sequence[tuple[Mapping[str, Any], Mapping[int, Path]]], parent: Path) -> list[str]:
    """Names of arms: their folders without task and seed where those tell them apart, else what differs."""
    stems = [
        {SEED.sub("", folder.resolve().relative_to(parent).as_posix()) for folder in runs.values()}
        for _, runs in arms
    ]
    tasks = {str(settings["task"]) for settings, _ in arms}
    names = [next(iter(stem)) for stem in stems]
    if len(tasks) == 1:
        names = [name.removesuffix(f"/{min(tasks)}") for name in names]
    if all(len(stem) == 1 for stem in stems) and len({*names, ""}) == len(names) + 1:
        return names
    differences = differing([settings for settings, _ in arms])
    texts = [written(settings, differences) or str(settings["task"]) for settings, _ in arms]
    return [text if len(text) <= MAX_NAME else f"arm {place}" for place, text in enumerate(texts, start=1)]


def families_of(arms: Sequence[Arm], name: str) -> list[list[Arm]]:
    """Arms in families that differ in one setting only."""
    families: dict[str, list[Arm]] = {}
    for arm in arms:
        others = sorted((key, value) for key, value in arm.settings.items() if key != name)
        families.setdefault(repr(others), []).append(arm)
    return list(families.values())


def ablation(base: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """What `other` lacks of `base`, in words; None if they differ otherwise or not at all."""
    changed = set(differing([base, other]))
    exchange = {name for name in changed if name.startswith("exchange.")}
    model = {name for name in changed if name in ("policy.model", "policy.models")}
    if changed == {"sees"} and other["sees"] == "none":
        return "without knowledge transfer"
    if changed and changed == exchange and not other["exchange.every"]:
        return "without role exchange"
    if "seats" in changed and changed <= {"seats", *exchange, *model} and other["seats"] == 1:
        return f"{SINGLE}, {other['policy.model']}" if model else SINGLE
    return None


def is_complete(settings: Mapping[str, Any]) -> bool:
    """Whether it is CORY with all of its parts."""
    return settings["seats"] > 1 and settings["sees"] != "none" and bool(settings["exchange.every"])
