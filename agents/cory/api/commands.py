"""`cory.train`, `cory.check` and `cory.evaluate`: the commands as functions."""

import copy
import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.api.datasets import named_as_given, with_dataset
from cory.api.rewards import Reward, known_here
from cory.api.runs import Run
from cory.config import own_model
from cory.config.parsing import base_settings
from cory.config.schema import Config, RunOptions
from cory.config.values import dotted
from cory.distributed import ranks
from cory.evaluation.records import files_sha256
from cory.evaluation.summary import check_output, write
from cory.judges.weighted_sum import closing
from cory.policies.loading import merged
from cory.runtime import hub
from cory.runtime.files import let_read
from cory.training import factory
from cory.training import run as training_run
from cory.training.check import Check, check_run, few_games
from cory.training.evaluate import evaluate_targets
from cory.training.run_directory import Resume, free_name
from cory.training.targets import Target, find_all
from cory.training.targets import remembered as remembered_player
from cory.training.trainer import Trainer
from cory_env import tasks
from cory_env.tasks.base import Task


def train(
    model: str | Path | tuple[Any, Any] | None = None,
    dataset: Any = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    *,
    task: Task | str | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    run: str | Path | None = None,
    overwrite: bool = False,
    resume: Resume = "never",
    callbacks: Sequence[object] = (),
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train policies by playing, as `cory train` does; the finished run.

    Args:
        model: A folder, a hub name, an embedded model, or a pair (transformers model, tokenizer), which is
            written to `models/` beside the run, so that it can be resumed and evaluated. By default the
            preset's.
        dataset: A `datasets.Dataset`, a list of dicts or of texts, a DataFrame, a dict of columns, any of
            these by split (a dict or `DatasetDict`), or a file; the task is then `prompts`. Rows in memory
            are written to `data/` beside the run directory, so that the run can be resumed and evaluated.
        reward: A function `f(prompts, completions, **columns) -> list[float]`, several of them (summed), or
            a judge as `--judge` takes it. Functions run in this process; a name `module:function` runs in
            workers with limits.
        task: A task object or the name of one.
        preset: Settings to start from; by default `pocket`, for a language model that is not bundled `own`.
        config: A YAML file of settings, such as the `config.yaml` of a run.
        run: Run directory; by default a new one under `runs/`.
        overwrite: Whether the run in the directory is moved aside first, to `RUN.old-TIME`; ValueError if the
            directory holds anything that CORY has not written.
        resume: `auto` or `must`: go on with the run in the directory; without `preset` and `config`, settings
            left out are those it has.
        callbacks: Objects with any of `on_iteration`, `on_evaluate`, `on_exchange`, `on_save`.
        quiet: Whether only warnings and errors are printed.
        settings: Any setting of `cory train --help`; groups as dictionaries or as their dataclasses:
            `kl={"coef": 0.1}`, `learner=LearnerConfig(lr=1e-5)`.

    Raises:
        ValueError: For settings that make no sense, before anything is written.
        cory.runtime.signals.Stopped: After Ctrl-C or SIGTERM; its notes say how to resume.
    """
    check_names(settings, train)
    if run is not None and not str(run).strip():
        raise ValueError("run is empty; name the folder of the run")
    ranks.join()
    options = RunOptions(
        preset=preset, config=_path(config), run=_path(run), overwrite=overwrite, resume=resume
    )
    folder = Path("runs") if options.run is None else options.run.parent
    name, final, make = _prepared(model, dataset, reward, task, options, settings, beside=folder)
    path = options.run or free_name(folder / f"{name}-{final.seats}-seats-seed-{final.seed}")
    report, trainer = training_run.train(
        final,
        path,
        overwrite=overwrite,
        resume=resume,
        make_trainer=make,
        callbacks=callbacks,
        quiet=quiet,
        about=own_model.lines(name, final),
    )
    is_team = final.policy.kind == "lora_team"  # its models are one, with the adapters off
    return Run(report.parent, policies=None if is_team else trainer.policies)


def check(
    model: str | Path | tuple[Any, Any] | None = None,
    dataset: Any = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    *,
    task: Task | str | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    run: str | Path | None = None,
    resume: Resume = "never",
    **settings: Any,
) -> Check:
    """Play and learn from a few games by the settings of `cory.train`, and write nothing.

    What the seats read, what the reference responds and scores, what caps cut, and how long it takes;
    `print` shows it. Errors are those of `cory.train`.
    """
    check_names(settings, check)
    options = RunOptions(preset=preset, config=_path(config), run=_path(run), resume=resume)
    with TemporaryDirectory() as folder:
        name, final, make = _prepared(model, dataset, reward, task, options, settings, beside=Path(folder))
        factory.configure_runtime(final)
        trainer = make(few_games(final))
        with closing(trainer.task):
            return check_run(trainer, batch=final.batch, about=own_model.lines(name, final))


def evaluate(
    *targets: Run | str | Path,
    preset: str | None = None,
    game: bool = True,
    out: str | Path | None = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> dict[str, Any]:
    """Evaluate runs, checkpoints, models or players on held-out queries, as `cory evaluate` does.

    Returns the summary as a dict, with all texts under `responses`.

    `settings` hold for every target, as in `cory.train`; `evaluation={"queries": 128, "samples": 8}` says
    how much. With `out`, a JSON file, the summary and its samples are written too. `reward` is as in
    `cory.train`; by default that of the targets.
    """
    if not targets:
        raise ValueError("cory evaluate takes runs and models; name one or more")
    check_names(settings, evaluate)
    if (path := _path(out)) is not None:
        check_output(path)
    with known_here(reward) as judge:
        settings |= {} if judge is None else {"judge": judge}
        result = evaluate_targets(_targets(targets, preset, settings), game=game, on_progress=on_progress)
    if path is not None:
        write(path, result)
    return result


def cross_play(
    *targets: Run | str | Path,
    preset: str | None = None,
    out: str | Path | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> dict[str, Any]:
    """Play every policy of the targets as the pioneer of every one, as `cory evaluate --cross-play` does.

    The result, as `cory.training.cross_play.cross_play` describes it; with `out`, a JSON file, it is written
    with a page of heat maps beside it. `settings` hold for every target, as in `cory.train`.
    """
    from cory.report import cross_play as report
    from cory.training import cross_play as playing

    if not targets:
        raise ValueError("cross-play takes runs and models; name one or more")
    check_names(settings, cross_play)
    if (path := _path(out)) is not None:
        report.check_output(path)
    unused = {**UNUSED, "evaluation.threshold": "the matrix is of scores"}
    result = playing.cross_play(_targets(targets, preset, settings, unused), on_progress=on_progress)
    if path is not None:
        report.write(path, result)
    return result


UNUSED = {
    "evaluation.team": "it is for evaluations during training; here games are played, unless `game` is off",
    "evaluation.average": "it is for evaluations during training; name the folder of an average",
}
"""Settings without an effect on an evaluation of finished policies, and why."""


def _targets(
    targets: Sequence[Run | str | Path],
    preset: str | None,
    settings: Mapping[str, Any],
    unused: Mapping[str, str] = UNUSED,
) -> list[Target]:
    """The targets with these settings, in a process that is set up for them; ValueError for `unused` ones."""
    given = with_players(settings)
    for name, why in unused.items():
        if given.get(name):
            raise ValueError(f"{name} changes nothing here: {why}; leave it out")
    named = find_all([os.fspath(target) for target in targets], preset=preset, settings=given)
    for target in named:
        factory.check_judge_used(target.config, given)
    factory.configure_runtime(named[0].config)
    return named


def with_players(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; objects that play a seat have names for this process."""
    given = dotted(settings)
    return {k: remembered_player(v) if k.startswith("players.") else v for k, v in given.items()}


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).expanduser()


def check_names(settings: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise ValueError for a name that is close to an argument of `function` and is no setting."""
    of_runs = {one.name.removesuffix("_options") for one in fields(Config)}
    arguments = [name for name in inspect.signature(function).parameters if name != "settings"]
    for name in settings:
        near = difflib.get_close_matches(name, arguments, n=1, cutoff=0.8)
        if near and name.partition(".")[0] not in of_runs:
            raise ValueError(f"{function.__name__} takes no argument {name!r}; write {near[0]}=...")


def _prepared(
    model: str | Path | tuple[Any, Any] | None,
    dataset: Any,
    reward: Reward | str | Sequence[Reward] | None,
    task: Task | str | None,
    options: RunOptions,
    settings: Mapping[str, Any],
    *,
    beside: Path,
) -> tuple[str, Config, Callable[[Config], Trainer]]:
    """The preset that was chosen, the settings, and what makes a `Trainer` with the objects that were given.

    Rows and models in memory are written into the folders `data` and `models` in `beside`.
    """
    given = with_players(settings)
    arguments = {"task.data": dataset, "policy.model": model, "judge": reward}
    for name, argument in arguments.items():
        if argument is not None and name in given:
            raise ValueError(f"{name} is given, and an argument that stands for it; give one of them")
    if task is not None:
        given["task"] = task if isinstance(task, str) else tasks.remember(task)
    if dataset is not None:
        given = with_dataset(given, dataset, beside / "data")
    if model is not None:
        given["policy.model"] = str(_saved(*model, beside / "models") if isinstance(model, tuple) else model)
    with known_here(reward) as judge:
        if judge is not None:
            given["judge"] = judge
        preset, start = base_settings(given, options)
        config = Config.from_flat(given, start)
        factory.check_judge_used(config, given)
    task_object = None if isinstance(task, str) else task

    def make(config: Config) -> Trainer:
        with named_as_given(dataset, str(given.get("task.data"))), known_here(reward):
            return Trainer(config, task=task_object)

    return preset, config, make


def _saved(model: Any, tokenizer: Any, folder: Path) -> Path:
    """The folder that a model in memory is written to, under a hash of its files; an adapter is merged.

    ValueError for a class that would not be loaded from there: its `forward` would be another one.
    """
    if type(model).__module__.startswith("peft."):
        model = merged(copy.deepcopy(model))
    if not type(model).__module__.startswith("transformers."):
        raise ValueError(
            f"the model is a {type(model).__qualname__}, and a run loads models from files, as classes of "
            "transformers; give such a model, or make a policy.kind of yours (docs/extending.md)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as part, hub.quiet():
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        saved = folder / files_sha256(Path(part))[:16]
        Path(part).chmod(folder.stat().st_mode)
        let_read(Path(part))
        with suppress(OSError):  # it is there
            Path(part).replace(saved)
    return saved
