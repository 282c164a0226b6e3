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
from contextlib import suppress
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

from agents import checkpoint, estimate, machine
from agents.build import hush
from agents.config import Config
from agents.judges.panel import closing
from agents.loop import Loop, documents
from agents.metrics import METRICS, Tracker
from agents.report import write_report
from agents.resume import (
    LOCK,
    check_complete,
    is_empty,
    locked,
    newest_whole,
    refuse_drift,
    rewind,
    stillborn,
)
from agents.settings import flat
from agents.stopping import Signals
from agents.trainer import Trainer
from cory_env.tasks.base import counted


def train(config: Config, run: Path) -> Path:
    """Run `config`, from its start or from where `run` was left, and leave everything in `run`.

    Returns the path of the report. `Stopped` if a signal came; its notes say where to go on.
    """
    machine.settle(threads=config.threads, matmul=config.matmul)
    hush()
    console = Console(stderr=True, markup=False, emoji=False)  # models write [/INST] and :)

    def say(text: str) -> None:
        with suppress(OSError):  # of a log that lies on a full disk
            console.print(text)

    found = checkpoint.finished(run)
    begun, skipped = resumable(config, run)
    if begun is None and not (config.resume == "auto" and stillborn(run)):
        refuse_occupied(run, overwrite=config.overwrite)
    trainer = Trainer(config)  # refuses bad settings before anything is written
    run.mkdir(parents=True, exist_ok=True)
    with locked(run), closing(trainer.task):
        if checkpoint.finished(run) != found:
            raise ValueError(f"another process has just trained in {run}; start this one again")
        for reason in skipped:
            say(f"passed over: {reason}")
        start = begin(trainer, run) if begun is None else go_on(trainer, run, begun)
        say(whole(trainer) + (f"; going on at iteration {start}" if begun else ""))
        if (tight := memory_warning(trainer)) is not None:
            say(tight)
        for line in data_of(trainer)["left_out"]:
            say(line)
        texts = [(run / name).read_text(encoding="utf-8") for name in ("config.yaml", "environment.json")]
        with (
            Signals(grace=config.grace) as signals,
            Tracker(run, say=say) as tracker,
            progress_bar(console) as bar,
        ):
            task = bar.add_task("starting", total=config.iterations, completed=start, numbers="")

            def shown(what: str, numbers: Mapping[str, float]) -> None:
                line = {"numbers": told(numbers)} if numbers else {}
                bar.update(task, description=what, advance=bool(numbers), **line)
                done = int(bar.tasks[0].completed)
                if not console.is_terminal and (what != "training" or (numbers and done % 5 == 0)):
                    say(f"iteration {done} of {config.iterations}: {told(numbers) if numbers else what}")

            texts_of_run = documents(*texts, config.seed)
            Loop(trainer, run, tracker, signals, say=say, documents=texts_of_run).go(start, shown=shown)
        check_complete(run, config.iterations)
        export(trainer, run)
        return write_report(run)


def memory_warning(trainer: Trainer) -> str | None:
    """What to say where the iterations of this run will not fit into memory."""
    game, most = trainer.game, trainer.config.max_response[1]
    longest = max(view.max_prompt(game.task.max_query, most) for view in game.views) + most
    needed = estimate.iteration_bytes(trainer.config, trainer.policies, longest)
    return estimate.warning(needed, estimate.free_bytes(next(iter(trainer.policies.values())).device))


def resumable(config: Config, run: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint to go on from, and why newer ones are passed over; refused where settings have moved."""
    if config.resume == "never":
        return None, []
    folder, skipped = newest_whole(run) if (run / "config.yaml").exists() else (None, [])
    if folder is None and (config.resume == "must" or skipped):
        why = "; ".join(skipped) or "it holds no checkpoint"
        raise ValueError(f"{run} cannot be resumed: {why}; name another run, or start it with --overwrite")
    if folder is not None:
        refuse_drift(run, folder, flat(config))
    return folder, skipped


def begin(trainer: Trainer, run: Path) -> int:
    """An empty run directory with its settings; iteration 0.

    Of an older run the settings go last: until then it is known as a run, which may be overwritten.
    """
    for path in sorted(run.iterdir(), key=lambda path: (path.name == "config.yaml", path.name)):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
    write_settings(trainer.config, run, environment() | {"data": data_of(trainer)})
    (run / METRICS).touch()
    return 0


def go_on(trainer: Trainer, run: Path, folder: Path) -> int:
    """Everything as it was when `folder` was saved; the iteration that comes next."""
    state = checkpoint.load(folder, trainer.learners, critic=trainer.critic)
    trainer.restore(state)
    iteration = int(state["iteration"])
    rewind(run, iteration)
    for late in checkpoint.finished(run):
        if late > folder:
            shutil.rmtree(late)  # passed over, said so, and about to be written again
    best = checkpoint.read_best(run)
    if best is not None and best["iteration"] > iteration:
        (run / "checkpoints/best.json").unlink()
    told = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    told.setdefault("resumed", []).append({"iteration": iteration, **environment()})
    write_settings(trainer.config, run, told)
    return iteration


def export(trainer: Trainer, run: Path) -> None:
    """The policies for others to load, each with its card."""
    for name, policy in trainer.policies.items():
        folder = run / "policies" / name
        if trainer.config.export == "merged":
            policy.save_merged(folder)
        else:
            policy.save(folder)
        write_card(folder, name, trainer.config)


def free_name(base: Path) -> Path:
    """`base`, or the first of base-2, base-3, ... that nothing occupies."""
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    return next(path for path in names if not path.exists() or (path.is_dir() and not any(path.iterdir())))


def refuse_occupied(run: Path, *, overwrite: bool) -> None:
    """Nothing of an older run is touched unless asked, and nothing that is no run even then."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"{run} is a file; name a folder with --run")
    if not is_empty(run):
        if not overwrite:
            raise ValueError(
                f"the run directory {run} is not empty; name another with --run, or pass --overwrite"
            )
        if not (run / "config.yaml").exists():
            raise ValueError(
                f"{run} holds no run (no config.yaml) and is not emptied; name another with --run"
            )


def write_settings(config: Config, run: Path, made_on: Mapping[str, Any]) -> None:
    """config.yaml and environment.json: what is needed to do it again."""
    checkpoint.write_text(run / "config.yaml", yaml.safe_dump(flat(config), sort_keys=False))
    checkpoint.write_text(run / "environment.json", json.dumps(made_on, indent=1))


def data_of(trainer: Trainer) -> dict[str, Any]:
    """How many queries there are, and how many of those held out the evaluations while training ask."""
    told = counted(trainer.task)
    return told | {"evaluated": min(told["test"], trainer.config.evaluation.queries)}


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
        "matmul": machine.chosen_matmul(),
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
