"""What several ranks and a single process do, to be compared; also what ends ranks.

A program: every rank runs `python -m tests.helpers.ranked_runs FOLDER` and leaves `rank-N.pt` there.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import cory
from cory.config.parsing import as_json
from cory.config.schema import Config
from cory.config.task_options import task_options
from cory.config.values import flat
from cory.distributed import ranks, sharding
from cory.evaluation.config import EvaluationConfig
from cory.training.held_out import HeldOut
from cory.training.run import train
from cory.training.trainer import Trainer
from tests.helpers.runs import with_cached_entry_points, without_report
from tests.helpers.short_memory import logits_at_most
from tests.helpers.tables import TABLES

ITERATIONS = 2
LANGUAGE_MODEL = {"policy.model": "gpt2", "policy.kind": "causal_lm", "learner.lr": 1e-4}
CASES: dict[str, dict[str, Any]] = {
    "ppo on a language model": LANGUAGE_MODEL,
    "a LoRA team, grpo, exact KL in the loss": LANGUAGE_MODEL
    | {"policy.kind": "lora_team", "algorithm": "grpo", "kl.place": "loss", "kl.kind": "full"},
    "minibatches, clipping, means of micro-batches": {
        "learner.minibatch": 8,
        "learner.microbatches": 2,
        "learner.accumulation_mean": "microbatch",
        "learner.max_grad_norm": 0.01,
    },
    "15 games, passes of one row": {"batch": 15, "learner.minibatch": 5, "learner.microbatches": 5},
    "adaptive eta, payoffs scaled": {"kl.target": 1.0, "payoff_scaling.scaling": "normalise"},
    "four seats, random exchange": {"seats": 4, "exchange.order": "random", "exchange.every": 1},
    "one policy in all seats, competitive": {"turns": ("llm_1", "llm_1"), "payoff": "competitive"},
    "a payoff that compares all games": {"payoff": "tests.helpers.tasks:above_mean"},
    "rows shared, weights averaged": {
        "sharing.same_view": True, "evaluation.average": True,
    },
    "central critic, evaluated as a team": {"critic.kind": "central", "evaluation.team": True},
    "scores of whole games, evaluated as a team": {
        "task": "tests.helpers.tasks:OddGames", "evaluation.team": True,
    },
    "trpo": {"algorithm": "trpo", "algorithm.fisher_every": 2},
    "happo": {"algorithm": "happo"},
    "vdac_mix": {"algorithm": "vdac_mix"},
    "reinforce with Elastic Reset": {
        "algorithm": "reinforce", "learner.elastic_reset": 1, "learner.ema": 0.5,
    },
    "memory runs out on one of the ranks": {},
    "sharded, ppo": LANGUAGE_MODEL | {"shard": True},
    "sharded, minibatches of 5, recomputed, clipped, averaged": LANGUAGE_MODEL
    | {
        "shard": True, "batch": 15, "learner.minibatch": 5, "learner.microbatches": 5,
        "policy.gradient_checkpointing": True, "learner.max_grad_norm": 0.01, "evaluation.average": True,
    },
    "sharded, a LoRA team, grpo, exact KL in the loss": LANGUAGE_MODEL
    | {
        "shard": True, "policy.kind": "lora_team", "algorithm": "grpo", "kl.place": "loss", "kl.kind": "full",
    },
    "sharded, a LoRA team beside its checkpoints": LANGUAGE_MODEL
    | {
        "shard": True, "policy.kind": "lora_team", "checkpoint_every": 1,
        "players": {"observer_1": "pool:2"},
    },
}  # fmt: skip
"""Settings by case; tables that play `OddIds` unless a model is named."""
RUN = {"iterations": 4, "checkpoint_every": 2, "keep_checkpoints": 9, "evaluation.every": 2, "threads": 1}

MODEL_RUN = LANGUAGE_MODEL | {
    "iterations": 2, "checkpoint_every": 1, "keep_checkpoints": 9, "threads": 1,
}  # fmt: skip


def config_of(folder: Path, settings: dict[str, Any]) -> Config:
    """16 games of `OddIds`, evaluated on 7 queries."""
    base = replace(
        Config.from_flat({"learner.lr": 0.1}, TABLES),
        task="tests.helpers.tasks:OddIds",
        task_options=task_options("tests.helpers.tasks:OddIds")(),
        batch=16,
        evaluation=EvaluationConfig(queries=7, every=0),
    )
    if "policy.model" in settings:
        settings = settings | {"policy.model": str(folder / settings["policy.model"])}
    return Config.from_flat(settings, base)


def played(config: Config) -> dict[str, Any]:
    """Responses, metrics, evaluations, gradients of the first steps and weights after some iterations."""
    trainer = Trainer(config)
    first: dict[str, Tensor] = {}
    for name, learner in trainer.learners.items():

        def note(*_: object, name: str = name) -> None:
            for parameter, p in trainer.policies[name].named_parameters():
                if p.grad is not None and f"{name} done" not in first:
                    first[f"{name}/{parameter}"] = sharding.whole(p.grad).clone()
            first[f"{name} done"] = torch.zeros(())

        learner.optimizer.register_step_pre_hook(note)
    responses, metrics, memory = [], [], []
    for i in range(ITERATIONS):
        metrics.append(trainer.iterate(i))
        memory.append(trainer.state.memory.logits)
        responses += [(batch.response_BT, batch.response_length_B) for batch in trainer.batches.values()]
    held_out = HeldOut(trainer)
    evaluated = held_out.evaluate()
    if config.evaluation.team:
        evaluated |= held_out.play_as_team(ITERATIONS)
    return {
        "responses": responses,
        "held": [p.to_local().numel() for p in trainable_model(trainer).parameters() if sharding.is_shard(p)],
        "metrics": metrics,
        "memory": memory,
        "evaluated": {name: (found.ids, found.arrays) for name, found in evaluated.items()},
        "gradients": first,
        "weights": {
            f"{name}/{parameter}": sharding.whole(p.detach()).clone()
            for name, policy in trainer.policies.items()
            for parameter, p in policy.named_parameters()
        },
    }


def trainable_model(trainer: Trainer) -> Any:
    """The model of the first policy; a table has none and stands for it."""
    policy = trainer.policies["llm_1"]
    return getattr(policy, "model", policy)


class StopAt:
    """A callback that has the process signalled."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_iteration(self, trainer: Trainer, iteration: int, metrics: object) -> None:
        if iteration == self.iteration:
            os.kill(os.getpid(), signal.SIGTERM)


class Meddle:
    """A callback that changes a weight of rank 0, where callbacks are called."""

    def on_iteration(self, trainer: Trainer, iteration: int, metrics: object) -> None:
        learner = trainer.learners["llm_1"]
        with torch.no_grad():
            next(iter(learner.trainable))[0] += 1
        trainer.note_fingerprints()


def runs(folder: Path) -> None:
    """Whole runs, resumed runs, and one that rank 0 alone is asked to stop."""
    config = config_of(folder, RUN)
    train(config, folder / "whole")
    train(replace(config, iterations=2), folder / "half")
    if ranks.is_main_process():
        shutil.copytree(folder / "half", folder / "to-resume")
    train(config, folder / "half", resume="must")
    train(config, folder / "from-one", resume="must")
    model = config_of(folder, MODEL_RUN | {"shard": True})
    train(replace(model, iterations=1), folder / "model-to-resume")
    train(model, folder / "model-from-one", resume="must")
    disk = folder / f"disk-{ranks.rank()}"
    disk.mkdir()
    settings = flat(config) | {"evaluation.every": 1, "evaluation.queries": 16}
    (disk / "settings.yaml").write_text(yaml.safe_dump(as_json(Config.from_flat(settings))))
    with chdir(disk):
        cory.train(config="settings.yaml", run="run", quiet=True)


def failures(folder: Path) -> dict[str, str]:
    """How runs end that cannot go on."""
    config = config_of(folder, RUN)
    first = ranks.is_main_process()
    judged = {"task": "tests.helpers.tasks:FailsOnRank1"}
    unlike = replace(config, seed=0 if first else 1)
    model = config_of(folder, MODEL_RUN | {"shard": True})

    def run(name: str, config: Config, **options: Any) -> Callable[[], object]:
        return lambda: train(config, folder / name, **options)

    attempts = {
        "unlike settings": run("unlike", unlike),
        "fewer games than ranks": run("few", replace(config, batch=1)),
        "a judge that fails on one rank": run("judged", Config.from_flat(judged, config)),
        "a judge that fails on one sharded rank": run("sharded-judged", Config.from_flat(judged, model)),
        "a signal to one rank": run("signalled", config, callbacks=[StopAt(2)]),
        "other weights on one rank": run("meddled", config, callbacks=[Meddle()]),
        "an occupied folder": run("whole", config),
        "ranks at other places": lambda: ranks.gather_object("here" if first else "there", None),
    }
    return {name: text_of(do) for name, do in attempts.items()}


def text_of(do: Callable[[], object]) -> str:
    """The error of a call."""
    try:
        do()
    except Exception as error:
        return f"{type(error).__name__}: {error} {getattr(error, '__notes__', [])}"
    return "no error"


def main(folder: Path) -> None:
    """Run everything as one rank of those that the environment names."""
    torch.set_num_threads(1)
    ranks.join()
    with pytest.MonkeyPatch.context() as patch:
        with_cached_entry_points(patch)
        without_report(patch)
        found = {}
        for case, settings in CASES.items():
            short = case.startswith("memory runs out") and not ranks.is_main_process()
            with logits_at_most(5, learning=True) if short else nullcontext():
                found[case] = played(config_of(folder, settings))
        runs(folder)
        torch.save({"cases": found, "failures": failures(folder)}, folder / f"rank-{ranks.rank()}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
