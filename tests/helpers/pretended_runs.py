"""Training iterations and evaluations on the pretended accelerator, each beside the same on the CPU.

A program: `python -m tests.helpers.pretended_runs RESULTS.json`. Torch must know of the device before the
first backward pass of a process, so tests start this one and read what it found.
"""

import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cory import algorithms, rng
from cory.batch import Batch, columns
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.evaluation.config import EvaluationConfig
from cory.judges.classifier import Classifier
from cory.learner.optimizer import LearnerConfig
from cory.pocket import JUDGE
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.precision import Precision
from cory.policies.scoring import evaluate
from cory.runtime.device import computes_bfloat16, default_device, device_name, free_bytes
from cory.training.factory import silence_transformers
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from tests.helpers.models import make_team, save_backbone
from tests.helpers.pretended_device import NAME, Counts, pretended_device
from tests.helpers.runs import with_cached_entry_points
from tests.helpers.tables import TABLES

DEVICE = f"{NAME}:0"
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "gpt2 ppo, exact KL in the loss, gradient checkpointing": {
        "kl.kind": "full", "kl.place": "loss", "policy.gradient_checkpointing": True,
        "learner.microbatches": 2,
    },
    "llama a2c, temperature, minibatches, clipping": {
        "algorithm": "a2c", "policy.model": "llama", "policy.temperature": 0.7, "learner.minibatch": 4,
        "learner.max_grad_norm": 0.1,
    },
    "qwen2 reinforce, one policy in all seats": {
        "algorithm": "reinforce", "policy.model": "qwen2", "turns": ("llm_1", "llm_1"),
    },
    "gpt2 trpo": {"algorithm": "trpo", "algorithm.value_steps": 2, "algorithm.cg_steps": 3},
    "gpt2 coma": {"algorithm": "coma"},
    "gpt2 vdac_mix": {"algorithm": "vdac_mix", "algorithm.mixer_epochs": 2},
    "llama seq, four seats in random order": {
        "algorithm": "seq", "policy.model": "llama", "seats": 4, "exchange.order": "random",
    },
    "gpt2 ppo, central critic, Elastic Reset": {
        "critic.kind": "central", "critic.epochs": 2, "learner.elastic_reset": 1, "learner.ema": 0.5,
    },
    "qwen2 grpo, LoRA, adaptive eta": {
        "algorithm": "grpo", "policy.kind": "lora_team", "policy.model": "qwen2", "kl.target": 1.0,
    },
    "gpt2 happo, LoRA": {"algorithm": "happo", "policy.kind": "lora_team"},
    "gpt2 ppo, rows shared, weights averaged": {
        "sharing.same_view": True, "evaluation.average": True,
    },
    "llama ppo, bfloat16": {"policy.model": "llama", "policy.precision": "bfloat16"},
    "gpt2 rloo, LoRA, bfloat16": {
        "algorithm": "rloo", "policy.kind": "lora_team", "policy.precision": "bfloat16",
    },
    "gpt2 ppo, released habits": {
        "policy.mismatch": "released", "payoff_scaling.scaling": "normalise",
        "algorithm.whiten_rewards": "released",
    },
}  # fmt: skip
"""Settings by case; the tiny model is gpt2 unless named."""
TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "adaptive eta, payoffs scaled": {"kl.target": 1.0, "payoff_scaling.scaling": "normalise"},
    "competitive, evaluated as a team": {"payoff": "competitive", "evaluation.team": True},
    "paper's sampling, best of 3": {"evaluation.sampling": "paper", "evaluation.samples": 3},
    "one seat, exchange resets": {"seats": 1, "exchange.every": 1, "exchange.reset": True},
}
ALGORITHMS = [name for name in algorithms.names() if "." not in name]
CASES = [*LANGUAGE_MODELS, *(f"tables {name}" for name in (*ALGORITHMS, *TABLE_SETTINGS))]
ROUNDED = ("bfloat16", "released habits")
"""Cases whose tokens differ from the CPU's: by the rounding of bfloat16, and by torch's own dropout."""
DECODED = dict.fromkeys(("gpt2", "llama", "qwen2", "lora"), "float32") | {"lora in bfloat16": "auto"}
"""Precision by case."""
SHORT, LONG = 9, 17
"""Tokens of two rollouts: the difference is what decoding alone asks of the device."""


@cache
def folder_of(kind: str) -> str:
    """A folder with a tiny model."""
    return str(save_backbone(kind, Path(tempfile.mkdtemp()) / kind))


def settings_of(case: str) -> dict[str, Any]:
    """What differs from `TABLES`, by dotted name."""
    if case in LANGUAGE_MODELS:
        settings = LANGUAGE_MODELS[case]
        return {**settings, "policy.model": folder_of(settings.get("policy.model", "gpt2"))}
    name = case.removeprefix("tables ")
    return {"policy.kind": "table", **TABLE_SETTINGS.get(name, {"algorithm": name})}


def config_of(case: str, device: str) -> Config:
    """Eight games, one epoch, an evaluation of two queries."""
    base = replace(
        TABLES,
        task="tests.helpers.tasks:OddIds",
        task_options=task_options("tests.helpers.tasks:OddIds")(),
        batch=8,
        policy=PolicyConfig(device=device, precision="float32"),
        learner=LearnerConfig(lr=1e-4 if case in LANGUAGE_MODELS else 0.1),
        evaluation=EvaluationConfig(queries=2, every=0),
    )
    config = Config.from_flat(settings_of(case), base)
    if not hasattr(config.algorithm_options, "epochs"):
        return config
    return replace(config, algorithm_options=replace(config.algorithm_options, epochs=1))


def trained(case: str, device: str) -> SimpleNamespace:
    """One iteration and an evaluation: responses, metrics, gradients of every policy's first step.

    With TRPO, which takes no step of an optimiser, the weights after it stand for gradients.
    """
    config = config_of(case, device)
    trainer = Trainer(config)
    first: dict[str, dict[str, Tensor]] = {}
    for name, learner in trainer.learners.items():

        def note(*_: object, name: str = name) -> None:
            first.setdefault(name, gradients(trainer, name))

        learner.optimizer.register_step_pre_hook(note)
    metrics = trainer.iterate(0)
    responses = HeldOut(trainer).evaluate()
    if config.evaluation.team:
        HeldOut(trainer).play_as_team(1)
    HeldOut(trainer).sample_rows(1, responses)
    moved = {} if trainer.algorithm.update is None else trainer.policies
    weights = {
        name: {n: p.detach().cpu() for n, p in policy.named_parameters()} for name, policy in moved.items()
    }
    return SimpleNamespace(
        batches={seat: on_cpu(batch) for seat, batch in trainer.batches.items()},
        evaluated={name: found.ids for name, found in responses.items()},
        gradients=weights or first,
        metrics={key: value for key, value in metrics.items() if "time/" not in key and "speed/" not in key},
        device=str(next(iter(trainer.policies.values())).device),
    )


def on_cpu(batch: Batch) -> Batch:
    """The same batch on the CPU."""
    return Batch(**{name: getattr(batch, name).cpu() for name in columns(Batch)})


def rounding(case: str, batch: Batch) -> float:
    """How far log-probs of the first iteration are from those of the same tokens in float32 on the CPU."""
    trainer = Trainer(Config.from_flat({"policy.precision": "float32"}, config_of(case, "cpu")))
    exact_BT = evaluate(trainer.policies["llm_1"], batch).logprobs_BT
    return float((batch.old_logprobs_BT - exact_BT).abs().max())


def gradients(trainer: Trainer, name: str) -> dict[str, Tensor]:
    """The gradients of a policy on the CPU, by parameter."""
    named = trainer.policies[name].named_parameters()
    return {parameter: p.grad.detach().cpu() for parameter, p in named if p.grad is not None}


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Largest difference, in units of the largest number; infinite for other names."""
    if one.keys() != other.keys():
        return float("inf")
    largest = max(float(tensor.abs().max()) for tensor in one.values())
    return max(float((tensor - other[name]).abs().max()) for name, tensor in one.items()) / largest


def compared(case: str) -> dict[str, Any]:
    """What a case gives there and on the CPU."""
    with pretended_device() as counts:
        there = trained(case, DEVICE)
    here = trained(case, "cpu")
    return {
        "device": there.device,
        "synchronised": counts.synchronised,
        "same_tokens": there.evaluated == here.evaluated
        and all(torch.equal(there.batches[s].response_BT, here.batches[s].response_BT) for s in here.batches),
        "policies": sorted(there.gradients) == sorted(here.gradients),
        "gradient": max(difference(here.gradients[name], there.gradients[name]) for name in here.gradients),
        "metrics": {
            key: [value, there.metrics[key]]
            for key, value in here.metrics.items()
            if not np.isclose(value, there.metrics[key], rtol=1e-4, atol=1e-4, equal_nan=True)
        },
        "rounding": rounding(case, there.batches["pioneer_0"]) if "bfloat16" in case else 0.0,
        "finite": all(np.isfinite(value) for value in there.metrics.values()),
    }


def decoded(kind: str, tokens: int, precision: Precision) -> Counts:
    """What sampling `tokens` tokens for each of three rows asks of the device."""
    if kind.startswith("lora"):
        policy: CausalLMPolicy = make_team(
            Path(folder_of("gpt2")), device=DEVICE, precision=precision
        ).policies["llm_1"]
    else:
        policy = CausalLMPolicy.load("llm_1", folder_of(kind), device=DEVICE, precision=precision)
    policy.eos = frozenset({-1})  # no response ends early
    with pretended_device() as counts:
        policy.sample(
            torch.full((3, 4), 5, device=DEVICE),
            torch.tensor([4, 2, 3], device=DEVICE),
            uniforms_BT=torch.from_numpy(rng.uniforms((0, "test"), np.arange(3), tokens)),
            caps_B=torch.full((3,), tokens, device=DEVICE),
        )
    return counts


def decoding(case: str) -> dict[str, float]:
    """Waits, copies and launches of a decoded token, launches also by layer."""
    kind = case.partition(" ")[0]
    with pretended_device():
        short, long = (decoded(kind, tokens, DECODED[case]) for tokens in (SHORT, LONG))
    more = LONG - SHORT
    return {
        "waits": (long.waits.total() - short.waits.total()) / more,
        "copies": (long.copies.total() - short.copies.total()) / more,
        "launches": (long.launches - short.launches) / more,
        "where": dict(long.waits - short.waits + long.copies - short.copies),
    }


def judged() -> dict[str, list[float]]:
    """Scores of the embedded classifier."""
    texts = ["a good film", "bad"]
    with pretended_device():
        there = Classifier(JUDGE, device=DEVICE)(texts)
    return {"cpu": Classifier(JUDGE)(texts), "there": there}


def acted() -> dict[str, list[int]]:
    """Tokens that a policy plays one by one in an environment."""
    observation = np.array([5, 6, 7, 8, 0, 0])

    def play(device: str) -> list[int]:
        policy = CausalLMPolicy.load("llm_1", folder_of("gpt2"), device=device, precision="float32")
        prompts = [{"prompt_length": 3, "response_length": n, "cap": 3} for n in (0, 1)]
        return [policy.act(observation, info, seed=1) for info in prompts]

    with pretended_device():
        there = play(DEVICE)
    return {"cpu": play("cpu"), "there": there}


def described() -> dict[str, Any]:
    """What `auto` takes, and what is known of the device."""
    with pretended_device():
        device = torch.device(DEVICE)
        there = [default_device(), computes_bfloat16(device), free_bytes(device)]
        there.append(Trainer(Config.from_flat({"batch": 4}, TABLES)).config.memory)
    return {"there": there, "gone": [default_device(), device_name()]}


def faults() -> dict[str, str]:
    """What the device answers to careless code."""
    with pretended_device() as counts:
        a = torch.ones(3, device=DEVICE)
        careless = {
            "meets a tensor of the CPU": lambda: a + torch.ones(3),
            "becomes an array": lambda: a.numpy(),
            "is indexed into by a tensor of the CPU": lambda: torch.ones(3)[a.long()],
            "is read": lambda: a.sum().item(),
            "selects by a mask": lambda: a[a > 0],
            "is copied": lambda: a.cpu(),
        }
        answers = {}
        for name, do in careless.items():
            counts.waits.clear(), counts.copies.clear()
            with caught() as errors:
                do()
            answers[name] = (
                f"{''.join(errors)[:70]}; {counts.waits.total()} waits, {counts.copies.total()} copies"
            )
    return answers


@contextmanager
def caught() -> Iterator[list[str]]:
    """A list that receives the error of the block, if there is one."""
    errors: list[str] = []
    try:
        yield errors
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")


def attempt(function, *arguments: Any) -> dict[str, Any]:
    """The result of a function, or where it failed."""
    try:
        return function(*arguments)
    except Exception:
        return {"error": traceback.format_exc()}


def main(results: Path) -> None:
    """Run everything and write what was found."""
    with pretended_device():
        pass  # the device must be there before the first backward pass
    torch.set_num_threads(1)
    silence_transformers()
    with pytest.MonkeyPatch.context() as patch:
        with_cached_entry_points(patch)
        found = {
            "cases": {case: attempt(compared, case) for case in CASES},
            "decoding": {case: attempt(decoding, case) for case in DECODED},
            "judged": attempt(judged),
            "acted": attempt(acted),
            "described": attempt(described),
            "faults": attempt(faults),
        }
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
