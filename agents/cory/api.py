"""The Python face of the commands: `cory.train`, `cory.evaluate`, `cory.load`, and registration of plug-ins.

Names and meanings are those of the command line: `cory train --kl.coef 0.1` is `cory.train(kl={"coef":
0.1})`.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cory import algorithms
from cory.config import presets
from cory.config.parsing import flags_from, flags_of, flat, read
from cory.config.schema import Config
from cory.evaluation.summary import sample_lines, write
from cory.functional import kl
from cory.judges import parsing
from cory.judges.weighted_sum import Term, WeightedSum
from cory.learner import central_critic
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.report.page import write_report
from cory.runtime import cpu
from cory.tracking.tracker import METRICS, SAMPLES, read_lines
from cory.tracking.tracker import read as read_metrics
from cory.training import factory
from cory.training import run as training_run
from cory.training.evaluate import evaluate_targets
from cory.training.factory import register_policy, silence_transformers
from cory.training.run_directory import free_name
from cory.training.targets import find
from cory.training.trainer import Trainer
from cory_env import tasks
from cory_env.tasks.base import Task

if TYPE_CHECKING:
    import pandas as pd

Reward = Callable[..., Sequence[float]]
"""`f(prompts, completions, **columns) -> scores`, or a judge `f(texts) -> scores`."""


class Run:
    """A run directory: settings, metrics, samples, policies, report."""

    def __init__(self, path: str | Path, *, policies: Mapping[str, Policy] | None = None) -> None:
        """`policies` are the trained ones if they are in memory; else they are loaded at first use."""
        self.path = Path(path)
        if not (self.path / METRICS).is_file():
            raise ValueError(
                f"{self.path} holds no {METRICS}; name the directory of a run, such as runs/<name>"
            )
        self._policies = dict(policies) if policies is not None else None

    @cached_property
    def config(self) -> Config:
        """The settings of the run."""
        return read(flags_of(self.path / "config.yaml"), default=Config(), about="", command="cory.load")

    @property
    def metrics(self) -> "pd.DataFrame":
        """All metrics: one row per iteration, one column per `seat/policy/quantity`."""
        import pandas as pd

        rows = read_metrics(self.path)
        if not rows:
            return pd.DataFrame().rename_axis("iteration")
        return pd.DataFrame(rows).groupby("iteration").last().sort_index()

    @property
    def samples(self) -> "pd.DataFrame":
        """Sample games as text, one row each."""
        import pandas as pd

        return pd.DataFrame(read_lines(self.path / SAMPLES))

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by name: those in memory, the exported ones, or the newest checkpoint's."""
        if self._policies is None:
            silence_transformers()
            target = find(str(self.path))
            self._policies = factory.load_players(target.config, target.folders).policies
        return self._policies

    @property
    def report(self) -> Path:
        """The report page, drawn if it is missing."""
        path = self.path / "report.html"
        return path if path.exists() else write_report(self.path)

    def evaluate(self, **settings: Any) -> dict[str, Any]:
        """The held-out evaluation of this run; see `cory.evaluate`."""
        return evaluate(self, **settings)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        import html

        frame = self.metrics
        shown = [name for name in frame.columns if name.endswith(("/task_reward", "/kl"))]
        name = html.escape(str(self.path))
        table = (
            "" if frame.empty else frame[shown].dropna(how="all").tail().to_html(float_format="{:.3f}".format)
        )
        return f"<p>Run <code>{name}</code>, report: <code>{name}/report.html</code></p>{table}"


def train(
    model: str | Path | tuple[Any, Any] | None = None,
    dataset: Any = None,
    reward: Reward | str | Sequence[Reward] | None = None,
    *,
    task: Task | str | None = None,
    preset: str = "pocket",
    run: str | Path | None = None,
    callbacks: Sequence[object] = (),
    **settings: Any,
) -> Run:
    """Train policies by playing, as `cory train` does; the finished run.

    Args:
        model: A folder, a hub name, an embedded model, or a pair (transformers model, tokenizer), which is
        copied for
            every policy and for the reference. By default the preset's.
        dataset: A `datasets.Dataset` or `DatasetDict`, a list of dicts, or a file; the task is then
        `prompts`. Rows in
            memory are written to `data/` beside the run directory, so that the run can be resumed and
            evaluated.
        reward: A function `f(prompts, completions, **columns) -> list[float]`, several of them (summed), or
        a judge
            as `--judge` takes it. Functions run in this process; a name `module:function` runs in workers
            with limits.
        task: A task object or the name of one.
        preset: Settings to start from.
        run: Run directory; by default a new one under `runs/`.
        callbacks: Objects with any of `on_iteration`, `on_evaluate`, `on_exchange`, `on_save`
            (`cory.training.loop.Callback`).
        settings: Any setting of `cory train --help`; groups as dictionaries or as their dataclasses:
            `kl={"coef": 0.1}`, `learner=LearnerConfig(lr=1e-5)`.

    Raises:
        ValueError: For settings that make no sense, before anything is written.
        cory.runtime.signals.Stopped: After Ctrl-C or SIGTERM; its notes say how to resume.
    """
    if isinstance(task, str):
        settings["task"] = task
    base = Path(run).parent if run is not None else Path("runs")
    if dataset is not None:
        settings = _with_dataset(settings, dataset, base / "data")
    if isinstance(model, str | Path):
        settings["policy"] = {**_as_dict(settings.get("policy", {})), "model": str(model)}
    judge = None
    if isinstance(reward, str):
        settings["judge"] = reward
    elif reward is not None:
        judge = _judge_of(reward)
        settings["judge"] = " + ".join(_name_of(one) for one in _listed(reward))
    saved = Path(run) / "config.yaml" if run is not None else None
    resumed = settings.get("resume", "never") != "never" and saved is not None and saved.exists()
    words = [*(flags_of(saved) if resumed and saved is not None else []), *flags_from(_plain(settings))]
    config = read(words, default=presets.get(preset), about="", command="cory.train")
    path = Path(run) if run is not None else None
    path = path or config.run or free_name(base / f"{preset}-{config.seats}-seats-seed-{config.seed}")
    config = replace(config, run=path)
    cpu.configure_runtime(threads=config.threads, matmul=config.matmul)
    silence_transformers()
    policies = _copies(model, config) if isinstance(model, tuple) else None
    task_object = None if task is None or isinstance(task, str) else task
    trainer = Trainer(config, task=task_object, policies=policies, judge=judge)
    training_run.train(config, path, trainer=trainer, callbacks=callbacks)
    return Run(path, policies=trainer.policies)


def evaluate(
    *targets: "Run | str | Path",
    preset: str | None = None,
    game: bool = True,
    json_file: str | Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Evaluate runs, checkpoints or models on held-out queries, as `cory evaluate` does.

    Returns the summary as a dict.

    `settings` hold for every target, as in `cory.train`; `evaluation={"queries": 128, "samples": 8}` says
    how much. With `json_file` the summary and its samples are written too.
    """
    if not targets:
        raise ValueError("cory.evaluate takes runs and models; name one or more")
    silence_transformers()
    names = [str(target.path) if isinstance(target, Run) else str(target) for target in targets]
    words = flags_from(_plain(settings))
    found = [find(name, preset=preset, flags=words) for name in names]
    cpu.configure_runtime(threads=found[0].config.threads, matmul=found[0].config.matmul)
    result, evaluated = evaluate_targets(found, game=game)
    if json_file is not None:
        write(Path(json_file), result, sample_lines(evaluated))
    return result


def load(path: str | Path) -> Run:
    """The run in a directory."""
    return Run(path)


def register_algorithm(name: str, module: Any) -> None:
    """Make a module with the hooks of an algorithm available as `algorithm=name`."""
    algorithms.register(name, module)


def register_task(name: str, task_class: type) -> None:
    """Make a task class available as `task=name`."""
    tasks.register(name, task_class)


def register_judge(name: str, judge: Reward) -> None:
    """Make a function available as the judge `name`, also inside a weighted sum; it runs in this process."""
    parsing.register(name, judge)


def register_kl(name: str, estimator: kl.Estimator) -> None:
    """Make an estimator of KL per token available as `kl={"kind": name}`."""
    if name in kl.ESTIMATORS:
        raise ValueError(f"there is a KL estimator {name!r} already; choose another name")
    kl.ESTIMATORS[name] = estimator


def register_critic(name: str, critic_class: type) -> None:
    """Make a class available as `critic={"kind": name}`; made and called as `CentralCritic`."""
    central_critic.register(name, critic_class)


def _with_dataset(settings: Mapping[str, Any], dataset: Any, folder: Path) -> dict[str, Any]:
    """Settings with the task `prompts` (unless another is named) on this data."""
    path = Path(dataset) if isinstance(dataset, str | Path) else _written(dataset, folder)
    task = settings.get("task", "prompts")
    if not isinstance(task, str):
        raise ValueError(
            f"task is a {type(task).__name__}; name the task beside its options, as task='prompts'"
        )
    return {**settings, "task": task, "task.data": str(path)}


def _written(dataset: Any, folder: Path) -> Path:
    """Rows in memory as JSON lines under a name that is a hash of them; a folder for several splits."""
    if isinstance(dataset, Mapping):
        texts = {f"{split}.jsonl": _jsonl(rows) for split, rows in dataset.items()}
        digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
        target = folder / digest
        for name, text in texts.items():
            _write_once(target / name, text)
        return target
    text = _jsonl(dataset)
    target = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    _write_once(target, text)
    return target


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise ValueError(f"a row of the dataset is {row!r:.80}; give dicts such as {{'prompt': '...'}}")
        try:
            lines.append(json.dumps(dict(row), ensure_ascii=False))
        except TypeError as error:
            raise ValueError(
                f"a row of the dataset cannot be written as JSON ({error}): {row!r:.120}"
            ) from error
    if not lines:
        raise ValueError("the dataset is empty; give one row or more")
    return "\n".join(lines) + "\n"


def _write_once(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def _listed(reward: Reward | Sequence[Reward]) -> list[Reward]:
    return [reward] if callable(reward) else list(reward)


def _judge_of(reward: Reward | Sequence[Reward]) -> WeightedSum:
    rewards = _listed(reward)
    for one in rewards:
        if not callable(one):
            raise ValueError(
                f"reward is {one!r:.80}; give a function, a list of functions, or a judge's name"
            )
    return WeightedSum([Term(_name_of(one).replace("/", ":"), 1.0, one) for one in rewards])


def _name_of(function: Any) -> str:
    """`module:name`, by which `cory evaluate` finds a function that can be imported."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}:{kind.__qualname__}"


def _copies(model: tuple[Any, Any], config: Config) -> dict[str, Policy]:
    """A policy for every name from copies of one model, with another copy as their reference."""
    lm, tokenizer = model
    options = factory.policy_options(config)

    def copied(name: str) -> CausalLMPolicy:
        return CausalLMPolicy(name, copy.deepcopy(lm), tokenizer, **options)

    reference = copied("reference").requires_grad_(False)
    policies: dict[str, Policy] = {}
    for name in dict.fromkeys(config.policy_names):
        policies[name] = copied(name)
        policies[name].mismatch = config.policy.mismatch
        policies[name].set_reference(reference)
    return policies


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `flag: value`, from dataclasses and dictionaries alike."""
    plain: dict[str, Any] = {}
    for name, value in settings.items():
        name = name.removesuffix("_options")
        if is_dataclass(value) and not isinstance(value, type):
            plain |= {f"{name}.{key}": one for key, one in flat(value).items()}
        elif isinstance(value, Mapping):
            plain |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            plain[name] = value
    return plain


def _as_dict(group: Any) -> dict[str, Any]:
    return flat(group) if is_dataclass(group) and not isinstance(group, type) else dict(group)


__all__ = [
    "Run",
    "evaluate",
    "load",
    "register_algorithm",
    "register_critic",
    "register_judge",
    "register_kl",
    "register_policy",
    "register_task",
    "train",
]
