"""What is tried before the first run of a study starts, so that it does not fail hours later."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cory.config.schema import Config
from cory.evaluation.external import has_distribution
from cory.judges.weighted_sum import closing
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import load_tokenizer
from cory.study.plan import PlannedRun, make_target
from cory.study.spec import TARGET, Comparison
from cory.training.evaluate import check_target
from cory.training.factory import make_task, policy_class
from cory_env.tokenizer import Tokenizer, wrap

OF_KL = ("kl", "kl_per_token", "combined_reward")
"""Quantities that need the distribution of a policy."""


def check_runs(runs: Iterable[PlannedRun], primary: Sequence[Comparison]) -> None:
    """Try what every arm needs on every task: its model, data and judge, or its players.

    Weights of models that train are not read. ValueError, with arm and task, if something cannot be found or
    loaded.
    """
    tried = set()
    for run in runs:
        parts = (run.arm, run.task) if not run.is_trained else _parts(Config.from_flat(run.settings))
        if parts in tried:
            continue
        tried.add(parts)
        try:
            if run.is_trained:
                _try_task(Config.from_flat(run.settings))
            else:
                _try_players(run, primary)
        except (ValueError, OSError, ImportError) as error:
            raise ValueError(f"arm {run.arm!r} on task {run.task!r} cannot be run: {error}") from error


def check_writable(*folders: Path) -> None:
    """Make the folders and write to each; ValueError for one that does not let us."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0")
        except OSError as error:
            raise ValueError(f"{folder} cannot be written to ({error}); give another folder") from error


def _parts(config: Config) -> tuple[object, ...]:
    """What is tried of a configuration: its value is that of every configuration that needs no other try."""
    policy = config.policy
    settings = (config.task, config.task_options, config.judge, config.judge_options)
    return (*map(repr, settings), policy.kind, policy.model, *policy.models)


def _try_task(config: Config) -> None:
    """Make the task, with its data and judge, in the tokens of the model; ValueError if there is none."""
    kind = config.policy.kind
    tokens: list[Tokenizer] = []
    if kind != "table":
        if kind != "lora_team" and not issubclass(policy_class(kind), CausalLMPolicy):
            return  # only the policy itself knows its tokens
        tokens = [_tokens(model) for model in config.policy.models or (config.policy.model,)]
    on_cpu = replace(config, policy=replace(config.policy, device="cpu"))
    with closing(make_task(on_cpu, *tokens[:1])):
        pass


def _tokens(model: str) -> Tokenizer:
    """The tokens of a model, but for EOS ids that only its generation config names."""
    tokenizer = load_tokenizer(model)
    return wrap(tokenizer, eos={tokenizer.eos_token_id or 0}, vocab_size=len(tokenizer))


def _try_players(run: PlannedRun, primary: Sequence[Comparison]) -> None:
    """Have the players of an arm respond once; ValueError if they cannot.

    Also for a comparison by KL or combined reward of players whose distribution is not known.
    """
    target = make_target(run.settings)
    known = all(has_distribution(player) for player in target.players.values())
    for one in primary:
        by_kl = one.metric.rpartition("/")[2] in OF_KL
        if by_kl and run.arm in (one.arm, one.baseline) and not known:
            raise ValueError(
                f"a primary comparison of {run.arm} by {one.metric}: the KL of {run.settings[TARGET]}, "
                "which plays by act, cannot be measured; compare task_reward"
            )
    check_target(target)
