"""From settings to the parts of a run: task, judges, policies, learners, game."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents import algorithms, pocket
from agents.config import Config
from agents.evaluate import Measure
from agents.judges import Classifier, NGrams
from agents.learner import Learner
from agents.policies.base import Policy
from agents.policies.causal_lm import CausalLMPolicy
from agents.policies.table import TablePolicy
from cory_env import tasks
from cory_env.tasks.base import Task
from cory_env.tokenizer import Tokenizer, wrap

Judge = Callable[[Sequence[str]], Sequence[float]]


def hush() -> None:
    """For commands: no loading bars, no advice on attention masks (right padding needs none)."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_policy(name: str, config: Config, folder: str | Path | None = None) -> CausalLMPolicy:
    """A policy from `folder`, by default from the model all start from."""
    start = pocket.LM if config.policy.model == "pocket" else config.policy.model
    return CausalLMPolicy.load(
        name, folder or start, device=config.policy.device, temperature=config.policy.temperature
    )


def make_policies(config: Config) -> tuple[Task, Policy, dict[str, Policy]]:
    """The task, the frozen reference and the policies that start as its equals."""
    if config.policy.kind == "table":
        task = make_task(config, None)
        reference, *policies = [_table(name, task, config) for name in ("reference", *config.policy_names)]
    else:
        reference, *policies = [load_policy(name, config) for name in ("reference", *config.policy_names)]
        task = make_task(config, reference)
    reference.requires_grad_(False)
    for policy in (reference, *policies):
        policy.set_reference(reference)
    return task, reference, {policy.name: policy for policy in policies}


def _table(name: str, task: Task, config: Config) -> Policy:
    tokenizer = task.tokenizer
    return TablePolicy(
        name,
        vocab_size=tokenizer.vocab_size,
        eos=tokenizer.eos,
        pad=tokenizer.pad,
        max_response=config.max_response[1],
    )


def make_task(config: Config, policy: CausalLMPolicy | None) -> Task:
    """The task of the run, reading and writing in the policy's tokens."""
    options: dict[str, Any] = {}
    if policy is not None:
        options["tokenizer"] = wrap(policy.tokenizer, eos=policy.eos, vocab_size=policy.vocab_size)
    if config.task == "reviews":
        options |= {
            "judge": make_judge(config),
            "data": config.task_options.data or _openings(options["tokenizer"]),
        }
        options["max_query"] = config.task_options.max_query
    return tasks.load(config.task, **options)


def _openings(tokenizer: Tokenizer) -> Path:
    """The bundled openings, for models that read them as they were written."""
    from cory_env.tokenizer import load

    ours = load(pocket.LM)
    probe = "The quick brown fox wasn't moved by this film at all, 7/10."
    if tokenizer.vocab_size != ours.vocab_size or tokenizer.encode(probe) != ours.encode(probe):
        raise ValueError(
            "the bundled openings are token ids of the pocket model and this model has another tokenizer; "
            "give reviews of your own with --task.data (a parquet, CSV or JSONL file with a column `text`)"
        )
    return pocket.OPENINGS


def make_judge(config: Config) -> Judge:
    """The judge that pays."""
    if ":" in config.judge:
        return _function(config.judge)
    folder = pocket.JUDGE if config.judge == "pocket" else config.judge
    options = config.judge_options
    label = int(options.label) if options.label.isdigit() else options.label
    return Classifier(folder, label=label, output=options.output, device=config.policy.device)


def _function(spec: str) -> Judge:
    module, _, name = spec.partition(":")
    try:
        judge: Judge = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"judge {spec!r} cannot be imported ({error}); write module:function") from error
    return judge


def make_measures(config: Config) -> dict[str, Measure]:
    """What evaluations report beside the score: its probability, and a judge never trained against."""
    if config.task != "reviews":
        return {}
    second = NGrams(pocket.SECOND_JUDGE)
    measures: dict[str, Measure] = {"second_judge": lambda texts, score_B: np.array(second(texts))}
    if ":" not in config.judge and config.judge_options.output == "log_odds":
        measures["probability"] = lambda texts, score_B: 1 / (1 + np.exp(-score_B))
    return measures


def make_learners(config: Config, policies: dict[str, Policy]) -> dict[str, Learner]:
    """One learner per policy: nothing is shared between them."""
    return {
        name: Learner(
            policy,
            algorithms.load("ppo"),
            config.ppo,
            config=config.learner,
            kl_config=config.kl,
            payoff_config=config.payoff_scaling,
        )
        for name, policy in policies.items()
    }
