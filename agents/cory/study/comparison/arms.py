"""Arms read off run directories: runs with equal settings but for the seed."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cory.evaluation.records import IRRELEVANT, differing, environment_of, written
from cory.runtime.sources import changed, last_of
from cory.study.analysis import TABLE
from cory.study.plan import Plan, PlannedRun, completed, evaluated_unlike, settings_in
from cory.study.records import record
from cory.study.results import Results, assemble
from cory.study.spec import Comparison, Spec, Sweep
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

    @property
    def planned(self) -> list[PlannedRun]:
        """The runs as a study would have planned them."""
        task = str(self.settings["task"])
        return [
            PlannedRun(arm=self.name, task=task, seed=seed, settings={**self.settings, "seed": seed})
            for seed in self.runs
        ]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The runs as a study records them."""
        return [record(run, self.runs[run.seed]) for run in self.planned]

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


def as_study(
    arms: Sequence[Arm],
    rows: Iterable[Mapping[str, Any]],
    *,
    sweeps: Mapping[str, Sweep] = MappingProxyType({}),
) -> Results:
    """Results, not counted yet, of a study that has these arms of one task, and `rows` as its runs.

    It compares each arm with the first, at whose KL coefficient all have combined reward.
    """
    first, runs = arms[0], tuple(run for arm in arms for run in arm.planned)
    task, kl_coef = str(first.settings["task"]), float(first.settings["kl.coef"])
    names = differing([arm.settings for arm in arms])
    spec = Spec(
        name=f"Comparison of {len(runs)} runs",
        question=f"Arms on {task}: {len(arms)}, each of runs with equal settings but for the seed. The "
        "comparisons were not fixed before the runs.",
        arms={arm.name: {key: arm.settings[key] for key in names if key in arm.settings} for arm in arms},
        primary=tuple(
            Comparison(
                arm=arm.name,
                baseline=first.name,
                metric=metric,
                direction="lower" if metric == "kl" else "higher",
            )
            for metric in TABLE[not kl_coef :]  # without KL penalty combined reward is task reward
            for arm in arms[1:]
            if arm.runs.keys() & first.runs.keys()
        ),
        sweeps=sweeps,
    )
    return assemble(spec, Plan(runs=runs, kl_coef={task: kl_coef}), rows)


def unfinished(arms: Sequence[Arm]) -> list[str]:
    """A line on the runs that count as far as they were trained; nothing if all were trained to their end."""
    rows = [row for arm in arms for row in arm.rows if row["status"] == "unfinished"]
    names = [f"{row['arm']}, seed {row['seed']}" for row in rows]
    return [f"Not finished: {'; '.join(names)}."] if names else []


def unlike_evaluations(arms: Sequence[Arm]) -> list[str]:
    """What makes arms incomparable: files that changed between runs of one; other tasks, judges, evaluations.

    ValueError for arms of several tasks.
    """
    sources = {run: last_of(environment_of(run)) for arm in arms for run in arm.runs.values()}
    first, *others = begun = [next(iter(arm.runs.values())) for arm in arms]
    lines = [
        f"Not one arm: {text} between {start} and {run}."
        for arm, start in zip(arms, begun, strict=True)
        for run in arm.runs.values()
        if (text := changed(sources[start], sources[run]))
    ]
    for arm, other in zip(arms[1:], others, strict=True):
        folders, settings = f"{first} and {other}", (arms[0].settings, arm.settings)
        words = [
            f"{name} is {' and '.join(repr(side.get(name)) for side in settings)}"
            for name in evaluated_unlike(*settings)
            if name not in CHANGE_NO_NUMBER
        ]
        if settings[0]["task"] != settings[1]["task"]:
            listed = " and ".join(repr(side["task"]) for side in settings)
            raise ValueError(f"{folders} cannot be compared: task is {listed}; name runs of one task")
        shared = sources[first].keys() & sources[other].keys() - {"train split"}
        if text := changed(*({name: sources[run][name] for name in shared} for run in (first, other))):
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
