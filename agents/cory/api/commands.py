"""`cory.train`, `cory.check` and `cory.evaluate`: the commands as functions."""

import copy
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.api.datasets import named_as_given, with_dataset
from cory.api.rewards import Reward, judge_of, remembered
from cory.api.runs import Run
from cory.api.settings import as_dict, check_names, flags
from cory.config import own_model
from cory.config.parsing import flags_of, read, value_of
from cory.config.schema import Config
from cory.evaluation.summary import check_output, sample_lines, write
from cory.judges.weighted_sum import closing
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import merged
from cory.tracking.progress import Log
from cory.training import factory
from cory.training import run as training_run
from cory.training.check import Check, check_run, few_games
from cory.training.evaluate import evaluate_targets
from cory.training.run import Resume
from cory.training.run_directory import free_name
from cory.training.targets import find_all
from cory.training.trainer import Trainer
from cory_env.tasks.base import Task


def train(
    model: str | Path | tuple[Any, Any] | None = None,
    dataset: Any = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    *,
    task: Task | str | None = None,
    preset: str | None = None,
    run: str | Path | None = None,
    overwrite: bool = False,
    resume: Resume = "never",
    callbacks: Sequence[object] = (),
    log: Log = "auto",
    **settings: Any,
) -> Run:
    """Train policies by playing, as `cory train` does; the finished run.

    Args:
        model: A folder, a hub name, an embedded model, or a pair (transformers model, tokenizer), which is
            copied for every policy and for the reference. By default the preset's.
        dataset: A `datasets.Dataset`, a list of dicts or of texts, a DataFrame, a dict of columns, any of
            these by split (a dict or `DatasetDict`), or a file; the task is then `prompts`. Rows in memory
            are written to `data/` beside the run directory, so that the run can be resumed and evaluated.
        reward: A function `f(prompts, completions, **columns) -> list[float]`, several of them (summed), or
            a judge as `--judge` takes it. Functions run in this process; a name `module:function` runs in
            workers with limits.
        task: A task object or the name of one.
        preset: Settings to start from; by default `pocket`, for a language model that is not bundled `own`.
        run: Run directory; by default a new one under `runs/`.
        overwrite: Whether the run in the directory is moved aside first, to `RUN.old-TIME`; ValueError if the
            directory holds anything that CORY has not written.
        resume: `auto` or `must`: go on with the run in the directory; settings left out are those it has.
        callbacks: Objects with any of `on_iteration`, `on_evaluate`, `on_exchange`, `on_save`
            (`cory.training.loop.Callback`).
        log: How progress is shown: `auto` for the terminal, notebook or file at hand, `quiet` for warnings
            only, `json` for an object a line on standard output.
        settings: Any setting of `cory train --help`; groups as dictionaries or as their dataclasses:
            `kl={"coef": 0.1}`, `learner=LearnerConfig(lr=1e-5)`.

    Raises:
        ValueError: For settings that make no sense, before anything is written.
        cory.runtime.signals.Stopped: After Ctrl-C or SIGTERM; its notes say how to resume.
    """
    check_names(settings, train)
    if run is not None and not str(run).strip():
        raise ValueError("run is empty; name the folder of the run")
    run = None if run is None else Path(run).expanduser()
    base = run.parent if run is not None else Path("runs")
    saved = run / "config.yaml" if run is not None else None
    resumed = saved if resume != "never" and saved is not None and saved.exists() else None
    preset, config, parts = _prepared(
        model, dataset, reward, task, preset, settings, data=base / "data", resumed=resumed
    )
    default_name = base / f"{preset}-{config.seats}-seats-seed-{config.seed}"
    path = run if run is not None else free_name(default_name)
    with named_as_given(dataset, str(vars(config.task_options).get("data"))):
        trainer = Trainer(config, **parts)
    training_run.train(
        config,
        path,
        overwrite=overwrite,
        resume=resume,
        trainer=trainer,
        callbacks=callbacks,
        log=log,
        about=own_model.lines(preset, config),
    )
    return Run(path, policies=trainer.policies)


def check(
    model: str | Path | tuple[Any, Any] | None = None,
    dataset: Any = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    *,
    task: Task | str | None = None,
    preset: str | None = None,
    **settings: Any,
) -> Check:
    """Play and learn from a few games by the settings of `cory.train`, and write nothing.

    What the seats read, what the reference responds and scores, what caps cut, and how long it takes;
    `print` shows it. Errors are those of `cory.train`.
    """
    check_names(settings, check)
    with TemporaryDirectory() as folder:
        _, config, parts = _prepared(model, dataset, reward, task, preset, settings, data=Path(folder))
        with named_as_given(dataset, str(vars(config.task_options).get("data"))):
            trainer = Trainer(few_games(config), **parts)
        with closing(trainer.task):
            return check_run(trainer, batch=config.batch)


def evaluate(
    *targets: Run | str | Path,
    preset: str | None = None,
    game: bool = True,
    out: str | Path | None = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Evaluate runs, checkpoints, models or players on held-out queries, as `cory evaluate` does.

    Returns the summary as a dict.

    `settings` hold for every target, as in `cory.train`; `evaluation={"queries": 128, "samples": 8}` says
    how much. With `out`, a JSON file, the summary and its samples are written too. `reward` is as in
    `cory.train`; by default that of the targets.
    """
    if not targets:
        raise ValueError("cory.evaluate takes runs and models; name one or more")
    if out is not None:
        check_output(Path(out))
    factory.silence_transformers()
    check_names(settings, evaluate)
    if reward is not None:
        settings["judge"] = reward if isinstance(reward, str) else remembered(reward)
    names = [str(target.path) if isinstance(target, Run) else str(target) for target in targets]
    words = flags(settings)
    found = find_all(names, preset=preset, flags=words)
    factory.configure_runtime(found[0].config)
    result, evaluated = evaluate_targets(found, game=game)
    if out is not None:
        write(Path(out).expanduser(), result, sample_lines(evaluated))
    return result


def _prepared(
    model: str | Path | tuple[Any, Any] | None,
    dataset: Any,
    reward: Reward | str | Sequence[Reward] | None,
    task: Task | str | None,
    preset: str | None,
    settings: dict[str, Any],
    *,
    data: Path,
    resumed: Path | None = None,
) -> tuple[str, Config, dict[str, Any]]:
    """The preset that was chosen, the settings, and the objects that a `Trainer` takes.

    Rows in memory are written into the folder `data`; `resumed` is the settings file of a run that goes on.
    """
    if isinstance(task, str):
        settings["task"] = task
    if dataset is not None:
        settings = with_dataset(settings, dataset, data)
    if isinstance(model, str | Path):
        settings["policy"] = {**as_dict(settings.get("policy", {})), "model": str(model)}
    judge = None
    if isinstance(reward, str):
        settings["judge"] = reward
    elif reward is not None:
        judge = judge_of(reward)
        settings["judge"] = remembered(reward)
    words = [*(flags_of(resumed) if resumed is not None else []), *flags(settings)]
    named = model[0] if isinstance(model, tuple) else value_of(words, "--policy.model")
    kind = value_of(words, "--policy.kind")
    preset = own_model.chosen("pocket" if resumed is not None else preset, named, kind)
    default = own_model.start(preset, model=named, kind=kind)
    config = read(words, default=default, about="", command="cory.train")
    factory.configure_runtime(config)
    factory.silence_transformers()
    policies = _copies(model, config) if isinstance(model, tuple) else None
    task_object = None if task is None or isinstance(task, str) else task
    return preset, config, {"task": task_object, "policies": policies, "judge": judge}


def _copies(model: tuple[Any, Any], config: Config) -> dict[str, Policy]:
    """A policy for every name from copies of one model, with another copy as their reference."""
    lm, tokenizer = model
    if type(lm).__module__.startswith("peft."):
        lm = merged(copy.deepcopy(lm))
    options = factory.policy_options(config)

    def copied(name: str) -> CausalLMPolicy:
        return CausalLMPolicy(name, copy.deepcopy(lm), tokenizer, **options)

    reference = copied("reference").freeze(config.policy.frozen)
    policies: dict[str, Policy] = {}
    for name in dict.fromkeys(config.policy_names):
        policies[name] = copied(name)
        policies[name].mismatch = config.policy.mismatch
        policies[name].set_reference(reference)
    return policies
