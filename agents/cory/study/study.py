"""A study from start to end: plan, stored results, training, statistics, report."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import yaml
from filelock import FileLock

from cory.runtime.files import check_output, move_aside, write_text
from cory.runtime.signals import Stopped
from cory.runtime.terminal import say
from cory.study import records, results
from cory.study.analysis import analyse
from cory.study.by_settings import algorithms_by_name, values_of
from cory.study.checks import check_runs, check_writable
from cory.study.engines import Engine, Outcome, load_engine
from cory.study.plan import Plan, PlannedRun, graded, make_plan
from cory.study.reading import check, check_keys, make_spec, read_spec
from cory.study.report import PAGE, check_folder, write_report
from cory.study.results import Results
from cory.study.spec import Comparison, Spec, seeds_of
from cory.study.statistics import MIN_RUNS

FILE = "study.yaml"


class Finished(NamedTuple):
    """What a study leaves."""

    results: Results
    path: Path
    """The results file."""
    page: Path
    """The report page."""
    failed: list[Outcome]


def print_line(text: str) -> None:
    """Print to stderr."""
    say(text, file=sys.stderr)


class Study:
    """Arms x tasks x seeds with comparisons fixed before the run."""

    values: Mapping[str, Any] = MappingProxyType({})
    """The study file that is written into the folder of the runs, for a study that was made without one."""

    def __init__(self, **values: Any) -> None:
        """`values` are the keys of a study file (docs/studies/README.md); ValueError for an unknown one."""
        self.spec = make_spec(values)

    @classmethod
    def from_settings(
        cls,
        arms: Sequence[str],
        *,
        seeds: int | Sequence[int] = 5,
        preset: str | None = None,
        **settings: Any,
    ) -> Self:
        """A study without a file, as `cory study --task relay --arms ppo,happo`; `run` writes the file.

        Args:
            arms: Algorithms, or NAME=ALGORITHM; the first is the baseline. Combined reward is compared, and
                with several seats the collective reward of the last training games.
            seeds: Their number, or the seeds.
            preset: What the settings change; by default `pocket`, or `own` for a model that is not bundled.
            settings: Of all runs, as for `cory.train`.

        Raises:
            ValueError: For settings that make no sense, or fewer than two arms.
        """
        values = values_of(arms, settings, seeds=seeds, preset=preset)
        study = cls(**values)
        study.values = values
        return study

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """The study in a file."""
        study = cls.__new__(cls)
        study.spec = read_spec(Path(path).expanduser())
        return study

    def run(
        self,
        *,
        arms: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        seeds: int | None = None,
        quick: bool = False,
        jobs: int | None = None,
        out: str | Path | None = None,
        train: bool = True,
        engine: str = "local",
        retrain: bool = False,
        say: Callable[[str], None] = print_line,
    ) -> Finished:
        """Train what is missing, count, and write results and report.

        Args:
            arms: Only these are trained; all that have runs are reported. NAME=ALGORITHM is an arm beside the
                study's; the results then go to the folder of the runs. With `quick` the study's first arm is
                trained too.
            tasks: Only on these is trained.
            seeds: Seeds 0 to `seeds` - 1 instead of the study's.
            quick: One seed of two iterations of every arm, in a folder of its own.
            jobs: Runs at a time; by default one per accelerator, else per core, with `ray` one per CPU of
                the cluster. Runs on one accelerator share its memory.
            out: Folder of runs and report instead of the study's.
            train: Whether anything is trained; else only what is finished is counted again.
            engine: `local` (processes of this machine) or `ray` (tasks of a Ray cluster; the extra `ray`).
            retrain: Train again what was trained with other settings, files or modules than those of today
                (old run directories become `seed-N.old-TIME`), or lacks what the study measures by now and
                has no directory any more; and remove runs from the results whose arm or
                task the study no longer has; without, these are refused.
            say: Receives lines of progress.

        Raises:
            ImportError: If the engine's package is not installed.
            ValueError: Before the first run starts, for what cannot be built, found, loaded, compared or
                written, and for stored runs that are not the study's (unless `retrain`).
            cory.runtime.signals.Stopped: After Ctrl-C or SIGTERM; the same command goes on.
        """
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs is {jobs}; give 1 or more")
        chosen_engine = load_engine(engine)
        spec, arms = _with_algorithms(self.spec, arms, quick=quick)
        spec = _changed(spec, seeds=seeds, quick=quick, out=out)
        path = spec.results if spec.results is not None else spec.out / "results.json"
        plan = make_plan(spec)
        check_keys(arms or (), list(spec.arms), "the study's arms")
        check_keys(tasks or (), list(plan.kl_coef), "the study's tasks")
        check_folder(spec.out)
        check_writable(spec.out, path.parent)
        if self.values:
            check_output(spec.out / FILE, f"name: {spec.name}")
        files = [path] if quick or self.spec.results in (None, path) else [self.spec.results, path]
        chosen = [
            run
            for run in plan.runs
            if train and (arms is None or run.arm in arms) and (tasks is None or run.task in tasks)
        ]
        again = {run.name for run in chosen} if retrain else None
        known = _known_runs(spec.out, plan, files, retrain=again)
        if self.values and not quick:
            text = yaml.safe_dump({**self.values, "out": str(spec.out)}, sort_keys=False)
            write_text(spec.out / FILE, text)
        warn_of_changed_comparisons(spec, path, say)
        todo = [run for run in chosen if _is_missing(run, spec.out / run.name, known, retrain=retrain)]
        check_runs(todo, graded(spec, plan.kl_coef))
        needed = f"; verdicts need {MIN_RUNS} seeds" if spec.primary and len(spec.seeds) < MIN_RUNS else ""
        say(f"study {spec.name}: {len(plan.runs)} runs, {len(known)} found, {len(todo)} to run{needed}")
        failed = _train(chosen_engine(spec.out, jobs=jobs, say=say), todo) if todo else []
        with FileLock(path.with_name(f"{path.name}.lock")):  # another process may have added runs meanwhile
            known = _known_runs(spec.out, plan, files, retrain=again)
            counted = analyse(results.assemble(spec, plan, known.values()))
            results.save(path, counted)
        # Where another process trained a run meanwhile, this one was refused.
        failed = [end for end in failed if _is_missing(end.run, spec.out / end.run.name, known, retrain=True)]
        words = {True: "but for evaluations after training", False: "failed"}
        lines = [f"{one.run.name} {words[one.run.name in known]}: {one.error}" for one in failed]
        with FileLock(spec.out / f"{PAGE}.lock"):  # another process may draw the same figures
            page = write_report(counted, spec.out, lines)
        return Finished(counted, path, page, failed)


def _with_algorithms(
    spec: Spec, arms: Sequence[str] | None, *, quick: bool
) -> tuple[Spec, Sequence[str] | None]:
    """The study with the arms NAME=ALGORITHM beside its own, without its results file; all arms' names."""
    given = [arm for arm in arms or () if arm not in spec.arms and "=" in arm]
    added = algorithms_by_name(given)
    if not added:
        return spec, arms
    if taken := sorted(spec.arms.keys() & added.keys()):
        raise ValueError(f"the study has an arm {taken[0]!r}; give the algorithm another name")
    if len(added) < len(given):
        raise ValueError(f"two of {', '.join(given)} have one name; give each its own")
    first = [next(iter(spec.arms))] if quick else []
    settings = {name: {"algorithm": algorithm} for name, algorithm in added.items()}
    both = replace(spec, arms={**spec.arms, **settings}, results=None)
    check(both)
    return both, [*first, *added, *(arm for arm in arms or () if arm in spec.arms)]


def _changed(spec: Spec, *, seeds: int | None, quick: bool, out: str | Path | None) -> Spec:
    """The study with other seeds, in another folder, or tried quickly."""
    spec = spec if out is None else replace(spec, out=Path(out).expanduser())
    spec = spec.quick() if quick else spec
    return spec if seeds is None else replace(spec, seeds=seeds_of(seeds))


def warn_of_changed_comparisons(spec: Spec, path: Path, say: Callable[[str], None]) -> None:
    """Say that the runs in a results file were counted by other comparisons than the study's."""
    stored = results.load(path)
    if (
        stored is not None
        and stored["runs"]
        and [Comparison(**claim) for claim in stored["primary"]] != list(spec.primary)
    ):
        say(
            f"warning: the comparisons are not those that {path} was counted by, with "
            f"{len(stored['runs'])} runs; one that is written after its runs is no test"
        )


def _train(engine: Engine, runs: Sequence[PlannedRun]) -> list[Outcome]:
    """Train runs; the failed ones."""
    for run in runs:
        if records.why_holds_another(engine.out / run.name, run):
            move_aside(engine.out / run.name)
    try:
        outcomes = {outcome.run.name: outcome for outcome in engine.train(runs)}
        trained = [outcome.run for outcome in outcomes.values() if not outcome.error]
        meet = engine.train([run for run in trained if run.strangers])  # every seed is trained now
        outcomes |= {outcome.run.name: outcome for outcome in meet}
    except Stopped as stopped:
        stopped.add_note("finished runs stand; the same command goes on")
        raise
    return [outcome for outcome in outcomes.values() if outcome.error]


def _known_runs(
    out: Path, plan: Plan, files: Sequence[Path], *, retrain: Collection[str] | None
) -> dict[str, dict[str, Any]]:
    """The finished runs by name: those of results files, and before them those of run directories.

    ValueError for a directory or a row that holds another run than the plan's, unless of one to `retrain`.
    """
    known: dict[str, dict[str, Any]] = {}
    for file in files:
        known |= results.stored_runs(file, plan, retrain=retrain)
    for run in plan.runs:
        folder = out / run.name
        if why := records.why_holds_another(folder, run):
            if run.name not in (retrain or ()):
                raise ValueError(
                    f"{folder} holds another run ({why}); --retrain, or another name for the arm, or another "
                    "--out"
                )
            known.pop(run.name, None)
        elif records.finished(folder, run):
            known[run.name] = records.record(run, folder)
    return known


def _is_missing(
    run: PlannedRun, folder: Path, known: Mapping[str, Mapping[str, Any]], *, retrain: bool
) -> bool:
    """Whether a run is to be trained, or evaluated on more; without its directory only to `retrain`."""
    if run.name not in known:
        return True
    return not records.is_complete(run, known[run.name]) and (retrain or records.finished(folder, run))
