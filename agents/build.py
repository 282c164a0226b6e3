"""From settings to the parts of a run: task, judges, policies, learners, game."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agents import algorithms, pocket
from agents.config import Config
from agents.critic import CentralCritic
from agents.evaluate import Measure
from agents.judges import spec
from agents.judges.ngrams import NGrams
from agents.judges.panel import Panel
from agents.learner import Learner
from agents.policies.base import Policy
from agents.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from agents.policies.loading import check_device
from agents.policies.table import TablePolicy
from cory_env import tasks
from cory_env.tasks.base import Task
from cory_env.tokenizer import Tokenizer, wrap
from cory_env.vector import VectorGame

if TYPE_CHECKING:
    from agents.policies.lora_team import LoraTeam


def hush() -> None:
    """For commands: no loading bars, no advice on attention masks (right padding needs none)."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_policy(name: str, config: Config, folder: str | Path) -> CausalLMPolicy:
    """A policy from a folder, an embedded model or a hub name; an adapter is loaded on top of its own
    model."""
    policy = CausalLMPolicy.load(name, pocket.lm_path(folder), device=device_of(config), **options(config))
    policy.mismatch = config.policy.mismatch
    return policy


def device_of(config: Config) -> str:
    """The device the settings name, or the one `auto` finds."""
    if config.policy.device != "auto":
        return config.policy.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def options(config: Config) -> dict[str, Any]:
    """What the constructors of language models take."""
    settings = config.policy
    return {
        "temperature": settings.temperature,
        "precision": settings.precision,
        "gradient_checkpointing": settings.gradient_checkpointing,
    }


def make_players(config: Config) -> tuple[Task, dict[str, Policy], dict[str, Policy]]:
    """The task, the frozen reference of each policy by the policy's name, and the policies, their equals."""
    names = list(dict.fromkeys(config.policy_names))
    policies: dict[str, Policy] = {}
    if config.policy.kind == "table":
        task = make_task(config, None)
        references = dict.fromkeys(names, _table("reference", task, config))
        policies |= {name: _table(name, task, config) for name in names}
    elif config.policy.kind == "lora_team":
        team = load_team(config, names)
        references, policies = dict.fromkeys(names, team.reference), {**team.policies}
        task = make_task(config, team.reference)
    else:
        references = load_references(config, names)
        loaded = {name: load_policy(name, config, start) for name, start in starts(config, names).items()}
        check_same_tokenizer(list(loaded.values()))
        policies |= loaded
        task = make_task(config, references[names[0]])
    settle(references, policies)
    return task, references, policies


def load_players(
    config: Config, folders: Mapping[str, str]
) -> tuple[Task, dict[str, Policy], dict[str, Policy]]:
    """The same for policies as they were saved in `folders`, by name: to be judged or played with."""
    if config.policy.kind == "table":
        task, references, policies = make_players(config)
        for name, folder in folders.items():
            policies[name].restore(folder)
        return task, references, {name: policies[name] for name in folders}
    references = load_references(config, list(folders))
    loaded: dict[str, Policy] = {name: load_policy(name, config, folder) for name, folder in folders.items()}
    settle(references, loaded)
    return make_task(config, next(iter(references.values()))), references, loaded


def settle(references: Mapping[str, Policy], policies: Mapping[str, Policy]) -> None:
    """Freeze the references and price every policy against its own."""
    for name, policy in policies.items():
        references[name].requires_grad_(False)
        references[name].set_reference(references[name])
        policy.set_reference(references[name])


def starts(config: Config, names: Sequence[str]) -> dict[str, str]:
    """The model each policy starts from."""
    several = config.policy.models
    if not several:
        return dict.fromkeys(names, str(config.lora.adapter or config.policy.model))
    return {name: several[config.policy_names.index(name)] for name in names}


def load_references(config: Config, names: Sequence[str]) -> dict[str, Policy]:
    """One frozen policy per model that policies start from, by the policies' names."""
    models = starts(config, names)
    first = {model: name for name, model in reversed(models.items())}
    known = len(first) == 1
    loaded = {
        model: load_policy("reference" if known else f"reference_{name}", config, model)
        for model, name in first.items()
    }
    return {name: loaded[model] for name, model in models.items()}


def load_team(config: Config, names: Sequence[str]) -> "LoraTeam":
    """Adapters of all policies on one frozen model."""
    from agents.policies.lora_team import LoraTeam

    model = pocket.lm_path(config.policy.model)
    team = LoraTeam.load(names, model, device=device_of(config), config=config.lora, **options(config))
    for policy in team.policies.values():
        policy.mismatch = config.policy.mismatch
    return team


def _table(name: str, task: Task, config: Config) -> Policy:
    tokenizer = task.tokenizer
    check_device(device := device_of(config))
    table = TablePolicy(
        name,
        vocab_size=tokenizer.vocab_size,
        eos=tokenizer.eos,
        pad=tokenizer.pad,
        max_response=config.max_response[1],
    )
    return table.to(device)


def make_task(config: Config, policy: Policy | None) -> Task:
    """The task of the run, reading and writing in the policy's tokens."""
    known, given = tasks.options(config.task), vars(config.task_options)
    if isinstance(policy, CausalLMPolicy):
        if "tokenizer" not in known:
            raise ValueError(
                f"a language model hands its tokenizer to the task, and {config.task} takes none; give its "
                "class an argument `tokenizer`, or play it with --policy.kind table"
            )
        given = given | {"tokenizer": wrap(policy.tokenizer, eos=policy.eos, vocab_size=policy.vocab_size)}
    if config.task == "prompts" and config.judge == "pocket":
        raise ValueError(
            "the prompts task has no reward of its own; name one with --judge: module:function, "
            "regex:PATTERN, math-verify:COLUMN, a classifier (folder or hub name), or a weighted sum"
        )
    if "judge" in known:
        given = given | {"judge": make_judge(config)}
    elif config.judge != "pocket":
        raise ValueError(f"task {config.task} scores by itself and takes no judge; leave out --judge")
    if config.task == "reviews" and given["data"] is None:
        given = given | {"data": _openings(given["tokenizer"])}
    return tasks.load(config.task, **given)


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


def make_judge(config: Config) -> Panel:
    """The judge that pays; functions of the user have been imported, in processes of their own."""
    return spec.make(config.judge, config.judge_options, device=device_of(config))


def make_measures(config: Config) -> dict[str, Measure]:
    """What evaluations report beside the score: its probability, and a judge never trained against."""
    if config.task != "reviews":
        return {}
    second = NGrams(pocket.SECOND_JUDGE)
    measures: dict[str, Measure] = {"second_judge": lambda texts, score_B: np.array(second(texts))}
    if spec.is_classifier(config.judge) and config.judge_options.output == "log_odds":
        measures["probability"] = lambda texts, score_B: 1 / (1 + np.exp(-score_B))
    return measures


def make_learners(config: Config, policies: dict[str, Policy]) -> dict[str, Learner]:
    """One learner per policy: nothing is shared between them.

    Beside a central critic value heads are not trained: `value_coef` and `value_steps` of an algorithm that
    has them are 0.
    """
    options = config.algorithm_options
    if config.critic.kind == "central":
        untrained = {"value_coef": 0.0, "value_steps": 0}
        known = {field.name for field in fields(options)}
        options = replace(options, **{name: none for name, none in untrained.items() if name in known})
    return {
        name: Learner(
            policy,
            algorithms.load(config.algorithm),
            options,
            config=config.learner,
            kl_config=config.kl,
            payoff_config=config.payoff_scaling,
        )
        for name, policy in policies.items()
    }


def make_critic(config: Config, references: Mapping[str, Policy], game: VectorGame) -> CentralCritic | None:
    """The critic of all seats, where there is one; it reads as the first policy's reference does."""
    if config.critic.kind == "own":
        return None
    most = config.max_response[1]
    prompt = game.views[0].max_prompt(game.task.max_query, most)
    return CentralCritic(
        references[config.policy_names[0]],
        game.seats,
        config.critic,
        longest=prompt + len(game.seats) * most,
        seed=config.seed,
    )
