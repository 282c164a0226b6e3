"""Build the parts of a run from its settings: task, judge, policies, game, learners, critic."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cory import algorithms, pocket
from cory.config.schema import Config
from cory.config.values import changed
from cory.evaluation.evaluator import Measure
from cory.evaluation.external import Player
from cory.judges import parsing
from cory.judges.classifier import Classifier
from cory.judges.ngrams import NGrams
from cory.learner import central_critic
from cory.learner.central_critic import CentralCritic
from cory.learner.learner import Learner
from cory.policies import compiled_blocks, conformance
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from cory.policies.loading import check_device
from cory.policies.lora_config import SETTINGS
from cory.policies.table import TablePolicy
from cory.runtime import cpu
from cory.runtime.arithmetic import configure_arithmetic
from cory.runtime.device import default_device
from cory.runtime.memory import MemoryBudget, pass_bytes
from cory_env import tasks
from cory_env.grading.reward_functions import Judge
from cory_env.registry import Registry
from cory_env.tasks.base import Task, annotates, check_seats
from cory_env.tokenizer import HFTokenizer, Tokenizer
from cory_env.vector import VectorGame

if TYPE_CHECKING:
    from cory.policies.lora import LoraTeam

POLICIES: Registry[Any] = Registry(
    "policy.kind",
    "cory.policies",
    {"causal_lm": CausalLMPolicy, "lora_team": CausalLMPolicy, "table": TablePolicy},
    form="module:Class or file.py:Class",
)
"""Classes of policies by kind; those of the user are made as `CausalLMPolicy.load`."""


POOL = "pool"
"""Name of the policy that takes the weights of a pool of checkpoints."""


class Players(NamedTuple):
    """The task, the frozen reference of each policy by the policy's name, and the policies."""

    task: Task
    references: dict[str, Policy]
    policies: dict[str, Policy]


def configure_runtime(config: Config) -> None:
    """Threads, allocator and arithmetic of this process, by the settings of a run; transformers is silent."""
    silence_transformers()
    cpu.configure_runtime(threads=config.threads)
    configure_arithmetic(deterministic=config.deterministic)


def resolved(config: Config, players: Players) -> Config:
    """The settings with what was measured in place of `auto`, so that a resume and a rerun take the same."""
    policy = next(iter(players.policies.values()))
    memory = config.memory if policy.device.type == "cpu" else policy.memory.activations
    settings = config.policy
    if settings.compile == "auto":
        models = [*players.policies.values(), *players.references.values()]
        worthwhile = not config.shard and all(compiled_blocks.worthwhile(model) for model in models)
        compiles = worthwhile and compiled_blocks.missing(policy.device) is None
        settings = replace(settings, compile="yes" if compiles else "no")
    return replace(config, memory=memory, policy=settings)


def silence_transformers() -> None:
    """Switch off loading bars and advice about attention masks, which right padding does not need."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # PEFT imports it and it prints a line
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def policy_class(kind: str) -> type[Policy]:
    """The class of a policy kind, made by `load(name, path, *, device, **options)`."""
    policy_kind = POLICIES.load(kind)
    if not hasattr(policy_kind, "load"):
        raise ValueError(f"policy.kind {kind!r} has no classmethod load(name, path, *, device, **options)")
    return policy_kind  # type: ignore[no-any-return]


def load_policy(name: str, config: Config, folder: str | Path, *, merge: bool = True) -> Policy:
    """A policy from a folder, an embedded model or a hub name; `merge` as in `CausalLMPolicy.load`."""
    loaded: Any = policy_class(config.policy.kind)
    path, options = pocket.lm_path(folder), policy_options(config)
    if loaded is CausalLMPolicy:
        options["merge"] = merge
    policy: Policy = loaded.load(name, path, device=device_of(config), **options)
    policy.mismatch = config.policy.mismatch
    return policy


def load_saved(name: str, config: Config, task: Task, folder: str | Path) -> Policy:
    """A policy that plays and does not learn, from its folder; a lookup table has the size of the task."""
    if config.policy.kind != "table":
        return load_policy(name, config, folder, merge=False)
    table = _table(name, task, config)
    table.restore(folder)
    return table


def device_of(config: Config) -> str:
    """The device of the settings; `auto` is the accelerator if there is one, else cpu."""
    return default_device() if config.policy.device == "auto" else config.policy.device


def policy_options(config: Config) -> dict[str, Any]:
    """Keyword arguments of a language model's constructor."""
    settings = config.policy
    return {
        "temperature": settings.temperature,
        "precision": settings.precision,
        "gradient_checkpointing": settings.gradient_checkpointing,
    }


def make_players(
    config: Config,
    *,
    task: Task | None = None,
    policies: Mapping[str, Policy] | None = None,
    folders: Mapping[str, str] | None = None,
    merge: bool = False,
) -> Players:
    """Task, references and policies of a run, or of the policies saved in `folders`, by name.

    Objects that are given take the place of the settings; given policies must be named as
    `config.policy_names` and have a reference each. `merge` adds the adapters of `folders` to models of their
    own. References are frozen, every policy is linked to its own, and all share one memory budget.
    """
    saved = folders or {}
    names = list(saved or dict.fromkeys((*config.policy_names, *((POOL,) if config.pool else ()))))
    made: dict[str, Policy]
    if policies is not None:
        if sorted(policies) != sorted(names):
            raise ValueError(f"policies are {', '.join(policies)}; this run needs {', '.join(names)}")
        references, made = {name: policies[name].reference for name in names}, dict(policies)
        by_name = {one.name: one for one in references.values()}
        for one in references.values():
            if one is by_name[one.name] or one.equals(by_name[one.name]):
                continue
            raise ValueError(
                f"two references are called {one.name!r} and differ; evaluations are by name: call them "
                "reference_<policy>"
            )
    elif config.policy.kind == "table":
        task = task or make_task(config)
        references = dict.fromkeys(names, _table("reference", task, config))
        made = {name: _table(name, task, config) for name in names}
        for name, path in saved.items():
            made[name].restore(path)
    elif (
        config.policy.kind == "lora_team"
        and all((Path(p) / SETTINGS).exists() for p in saved.values())
        and not (saved and merge)
    ):
        team = load_team(config, names)
        for name, path in saved.items():
            team.policies[name].restore(path)
        references, made = dict.fromkeys(names, team.reference), {**team.policies}
    else:
        references, start = load_references(config, names), start_models(config, names)
        made = {
            name: load_policy(name, config, path, merge=merge or path == start[name])
            for name, path in (saved or start).items()
        }
        check_same_tokenizer((*made.values(), *references.values()))
        for policy in () if saved else made.values():
            if isinstance(policy, CausalLMPolicy):
                policy.begin_training()
    for name, policy in made.items():
        references[name].requires_grad_(False)
        references[name].set_reference(references[name])
        policy.set_reference(references[name])
    first = next(iter(references.values()))
    budget = MemoryBudget.of(pass_bytes(config.memory, first.device))
    for model in (*references.values(), *made.values()):
        model.budget = budget
    task = task or make_task(config, tokens_of(first))
    check_lengths(make_game(config, task, made), (*made.values(), *references.values()))
    return Players(task, references, made)


def start_models(config: Config, names: Sequence[str]) -> dict[str, str]:
    """The model each policy starts from; for a name that is none of a run's, such as `average`, the first."""
    several = config.policy.models
    if not several:
        return dict.fromkeys(names, str(config.lora.adapter or config.policy.model))
    models = dict(zip(dict.fromkeys(config.policy_names), several, strict=True))
    return {name: models.get(name, several[0]) for name in names}


def load_references(config: Config, names: Sequence[str]) -> dict[str, Policy]:
    """One frozen policy per model that policies start from, by the policies' names."""
    models = start_models(config, names)
    first = {model: name for name, model in reversed(models.items())}
    loaded = {
        model: load_policy("reference" if len(first) == 1 else f"reference_{name}", config, model)
        for model, name in first.items()
    }
    for policy in loaded.values():
        if isinstance(policy, CausalLMPolicy):
            policy.freeze()
    return {name: loaded[model] for name, model in models.items()}


def load_team(config: Config, names: Sequence[str]) -> "LoraTeam":
    """The adapters of all policies on one frozen model."""
    from cory.policies.lora import LoraTeam

    model = pocket.lm_path(config.policy.model)
    team = LoraTeam.load(
        names,
        model,
        device=device_of(config),
        config=config.lora,
        seed=config.seed,
        **policy_options(config),
    )
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
    table.temperature, table.mismatch = config.policy.temperature, config.policy.mismatch
    return table.to(device)


def tokens_of(policy: Policy) -> Tokenizer | None:
    """The tokens of a policy; None if it has no tokenizer and plays in those of the task."""
    tokenizer = getattr(policy, "tokenizer", None)
    if tokenizer is None:
        return None
    return HFTokenizer(tokenizer, eos=policy.eos, pad=policy.pad, vocab_size=policy.vocab_size)


def make_task(config: Config, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the run in the tokens of a policy, with its judge."""
    known, options = tasks.options(config.task), vars(config.task_options)
    if tokenizer is not None:
        if "tokenizer" not in known:
            raise ValueError(
                f"a language model passes its tokenizer to the task, and {config.task} takes none; give its "
                "class an argument `tokenizer`, or play it with --policy.kind table"
            )
        options = options | {"tokenizer": tokenizer}
    if _lacks_judge(config):
        raise ValueError(
            "the prompts task has no reward of its own; name one with --judge: module:function, "
            "regex:PATTERN, math-verify:COLUMN, a classifier (folder or hub name), or a weighted sum"
        )
    if "judge" in known:
        judge = parsing.make(config.judge, config.judge_options, device=device_of(config))
        options = options | {"judge": judge}
    elif config.judge != "pocket":
        raise ValueError(f"task {config.task} scores by itself and takes no judge; leave out --judge")
    if config.task == "reviews" and options["data"] is None:
        options = options | {"data": pocket.OPENINGS}
    return tasks.load(config.task, **options)


def _lacks_judge(config: Config) -> bool:
    """Whether the settings pose prompts and name no judge, which `make_task` refuses."""
    return config.task == "prompts" and config.judge == "pocket"


def check_judge_used(config: Config, given: Collection[str]) -> None:
    """Raise ValueError for a judge, or an option of one, among the settings `given` that changes nothing.

    Defaults and what a preset or a file says are no error: they may be for several tasks and judges.
    """
    named = [name for name in changed(config.judge_options) if f"judge.{name}" in given]
    if "judge" not in tasks.options(config.task):
        if named or ("judge" in given and config.judge != "pocket"):
            setting = f"judge.{named[0]}" if named else "the judge or reward"
            raise ValueError(f"task {config.task} scores by itself and takes no judge; leave out {setting}")
    elif named and not _lacks_judge(config) and (unused := parsing.without_effect(config.judge, named)):
        users = "classifiers" if unused[0] in parsing.OF_CLASSIFIERS else "functions in worker processes"
        raise ValueError(f"judge.{unused[0]} is for {users}, and {config.judge!r} names none; leave it out")


def make_measures(config: Config) -> dict[str, Measure]:
    """What evaluations report beside the score: its probability, and a judge never trained against.

    That is the pocket judge where SmolLM2's scores, and else a model of n-grams.
    """
    if config.task != "reviews":
        return {}
    of_smollm2 = config.judge == "smollm2"
    second: Judge = Classifier(pocket.JUDGE) if of_smollm2 else NGrams(pocket.SECOND_JUDGE)
    measures: dict[str, Measure] = {"second_judge": lambda texts, score_B: np.array(second(texts))}
    classifier = parsing.is_classifier(config.judge)
    of_positive = config.judge_options.label.lower() == "positive"
    if classifier and of_positive and config.judge_options.output == "log_odds":
        measures["probability"] = lambda texts, score_B: 1 / (1 + np.exp(-score_B))
    return measures


def make_game(config: Config, task: Task, policies: Mapping[str, Player]) -> VectorGame:
    """The game of the settings, paid as after the last iteration.

    ValueError for one seat of a task that scores teams only.
    """
    check_seats(task, config.seats)
    game = VectorGame(task, **game_options(config, policies))
    game.set_payoff(config.payoff_rule, iteration=config.iterations)
    return game


def longest_row(game: VectorGame) -> int:
    """The most tokens that a seat reads and writes."""
    cap = game.cap_range[1]
    return max(view.max_prompt(game.task.max_query, cap) for view in game.views) + cap


def check_lengths(game: VectorGame, players: Iterable[Player]) -> None:
    """Check the language models, one of each architecture, on a row as long as the game's longest.

    Where only decoding with a cache differs there, all of the architecture decode without one.
    """
    longest = longest_row(game)
    alike: dict[str, list[CausalLMPolicy]] = {}
    for player in players:
        if isinstance(player, CausalLMPolicy):
            alike.setdefault(player.model.config.to_json_string(), []).append(player)
    for first, *others in alike.values():
        conformance.check(first, longest=longest)
        for other in others:
            other.caches = other.caches and first.caches


def game_options(config: Config, policies: Mapping[str, Player]) -> dict[str, Any]:
    """Arguments of every view of the game; prompts and responses fit the policies' smallest window."""
    windows = [policy.window for policy in policies.values() if policy.window is not None]
    return {
        "seats": config.seats,
        "views": config.sees,  # a text, or texts by seat
        "payoff": config.payoff_rule,
        "max_response": config.max_response,
        "window": min(windows, default=None),
    }


def make_learners(config: Config, policies: Mapping[str, Policy]) -> dict[str, Learner]:
    """One learner per policy: nothing is shared between them.

    With a central critic value heads are not trained: an algorithm's `value_coef` and `value_steps` are set
    to 0.
    """
    options = config.algorithm_options
    if config.critic.kind != "own":
        untrained = {"value_coef": 0.0, "value_steps": 0}
        known = {field.name for field in fields(options)}
        options = replace(options, **{name: value for name, value in untrained.items() if name in known})
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


def check_credit(config: Config, task: Task) -> None:
    """Raise ValueError for an algorithm that drops earlier scores, where responses can change them."""
    options = config.algorithm_options
    shares = algorithms.load(config.algorithm).needs(options).payoff == "sum"
    if (
        shares
        and config.seats > 1
        and getattr(options, "others", True)
        and getattr(task, "score_games", None)
    ):
        raise ValueError(
            f"algorithm {config.algorithm!r} credits no seat with the scores of earlier ones, and task "
            f"{config.task!r} scores whole games, in which they depend on it; take ppo, happo, mappo or vdac"
        )


def make_critic(config: Config, references: Mapping[str, Policy], game: VectorGame) -> CentralCritic | None:
    """The critic of the seats that learn, None with `critic.kind` own, with the first policy's reference."""
    if config.critic.kind == "own":
        return None
    critic: Any = central_critic.critic_class(config.critic.kind)
    cap, task = config.max_response[1], game.task
    prompt = game.views[0].max_prompt(task.max_query, cap)  # it begins the transcripts
    made: CentralCritic = critic(
        references[config.policy_names[0]],
        config.learning_seats,
        config.critic,
        max_length=prompt + config.seats * (cap + (task.max_annotation if annotates(task) else 0)),
        seed=config.seed,
    )
    if not hasattr(made, "optimizer"):
        raise ValueError(
            f"critic.kind {config.critic.kind!r} has no optimizer, which checkpoints hold; see CentralCritic"
        )
    return made
