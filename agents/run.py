"""A training run from start to end: its directory, its progress bar, its evaluations, its report."""

import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from agents import checkpoint
from agents.build import hush
from agents.config import Config
from agents.metrics import Tracker
from agents.report import write_report
from agents.settings import flat
from agents.trainer import Trainer


def train(config: Config, run: Path) -> Path:
    """Run `config` and leave everything it produced in `run`; the path of the report."""
    if config.threads:
        torch.set_num_threads(config.threads)
    hush()
    refuse_occupied(run, overwrite=config.overwrite)
    trainer = Trainer(config)  # refuses bad settings before anything is written
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    write_settings(config, run)
    console = Console(stderr=True)
    console.print(whole(trainer))
    with Tracker(run) as tracker, progress_bar(console) as bar:
        task = bar.add_task("starting", total=config.iterations, numbers="")
        for iteration in range(config.iterations):
            if config.checkpoint_every and iteration % config.checkpoint_every == 0:
                save(trainer, run, iteration)
            if iteration == 0 or (config.evaluation.every and iteration % config.evaluation.every == 0):
                bar.update(task, description="evaluating")
                judge_alone(trainer, tracker, iteration)
            numbers = trainer.iterate(iteration)
            tracker.log(iteration, numbers)
            bar.update(task, advance=1, description="training", numbers=told(numbers))
            if not console.is_terminal and (iteration + 1) % 5 == 0:
                console.print(f"iteration {iteration + 1} of {config.iterations}: {told(numbers)}")
        bar.update(task, description="evaluating")
        if config.checkpoint_every:
            save(trainer, run, config.iterations)
        judge_alone(trainer, tracker, config.iterations)
    for name, policy in trainer.policies.items():
        if config.export == "merged":
            policy.save_merged(run / "policies" / name)
        else:
            policy.save(run / "policies" / name)
        write_card(run / "policies" / name, name, config)
    return write_report(run)


def free_name(base: Path) -> Path:
    """`base`, or the first of base-2, base-3, ... that nothing occupies."""
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    return next(path for path in names if not path.exists() or (path.is_dir() and not any(path.iterdir())))


def refuse_occupied(run: Path, *, overwrite: bool) -> None:
    """Nothing of an older run is touched unless asked, and nothing that is no run even then."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"{run} is a file; name a folder with --run")
    if run.is_dir() and any(run.iterdir()):
        if not overwrite:
            raise ValueError(
                f"the run directory {run} is not empty; name another with --run, or pass --overwrite"
            )
        if not (run / "config.yaml").exists():
            raise ValueError(
                f"{run} holds no run (no config.yaml) and is not emptied; name another with --run"
            )


def write_settings(config: Config, run: Path) -> None:
    """config.yaml and environment.json: what is needed to do it again."""
    (run / "config.yaml").write_text(yaml.safe_dump(flat(config), sort_keys=False), encoding="utf-8")
    (run / "environment.json").write_text(json.dumps(environment(), indent=1), encoding="utf-8")


def environment() -> dict[str, Any]:
    """Command, versions, machine and commit of this process."""
    here = Path(__file__).parent
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True)
    packages = ("cory", "torch", "transformers", "numpy", "pettingzoo", "gymnasium")
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: version(name) for name in packages},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def whole(trainer: Trainer) -> str:
    """One line on who plays: kinds, sizes, arithmetic, device."""
    policy = next(iter(trainer.policies.values()))
    weights = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    return (
        f"{len(trainer.policies)} {trainer.config.policy.kind} policies on {policy.device}, each "
        f"{weights:,} trainable weights, arithmetic {policy.precision} over float32 weights"
    )


def progress_bar(console: Console) -> Progress:
    """Iteration, each seat's reward and KL, tokens/s, time left; nothing where nobody watches a terminal."""
    return Progress(
        TextColumn("{task.description:>10}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def told(numbers: Mapping[str, float]) -> str:
    """The numbers of an iteration that people watch."""
    parts = []
    for key, reward in numbers.items():
        if key.endswith("/task_reward"):
            seat, policy, _ = key.split("/")
            kl = numbers[f"{seat}/{policy}/kl"]
            parts.append(f"{seat.split('_')[0]} {policy} {reward:+.2f} KL {kl:.1f}")
    return " | ".join([*parts, f"{numbers['speed/tokens/per_second']:.0f} tok/s"])


def save(trainer: Trainer, run: Path, iteration: int) -> None:
    """A checkpoint of the state at the start of `iteration`; older ones go once it is whole."""
    checkpoint.save(run, iteration, trainer.learners, trainer.state(), critic=trainer.critic)
    checkpoint.keep_last(run, trainer.config.keep_checkpoints)


def judge_alone(trainer: Trainer, tracker: Tracker, iteration: int) -> None:
    """Evaluate every policy alone, and let a few held-out games be read."""
    began = time.perf_counter()
    answers = trainer.answers()
    numbers = {"time/evaluate/seconds": time.perf_counter() - began}
    for name, of in answers.items():
        numbers |= {f"alone/{name}/{k}": v for k, v in of.numbers(kl_coef=trainer.config.kl.coef).items()}
    tracker.log(iteration, numbers)
    tracker.samples(iteration, trainer.sample_rows(iteration, answers))


def write_card(folder: Path, name: str, config: Config) -> None:
    """What this policy is and where it came from, for whoever finds the folder."""
    pocket = config.policy.model == "pocket"
    start = "the pocket LM of this project" if pocket else f"`{config.policy.model}`"
    how = "CORY" if config.seats > 1 else "single-agent PPO"
    text = f"""# {name}

Fine-tuned from {start} by {how} on the task `{config.task}`: {config.seats} seats,
{config.iterations} iterations of {config.batch} games, seed {config.seed},
KL price {config.kl.kind} x {config.kl.coef}. All settings are in the `config.yaml` of the run.

Load it with `AutoModelForCausalLM.from_pretrained`. `value_head.safetensors` is the value head it was
trained with; text generation does not need it. It was trained to please one automatic judge on short
continuations: an experiment in reinforcement learning, not a writer to rely on.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")
