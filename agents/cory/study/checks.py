"""What is tried before the first run of a study starts, so that it does not fail hours later."""

import tempfile
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from cory.config.schema import Config
from cory.judges.weighted_sum import closing
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import load_tokenizer
from cory.study.plan import PlannedRun, make_target
from cory.study.spec import TARGET
from cory.training.evaluate import check_target
from cory.training.factory import make_task, policy_class
from cory_env.tasks.base import correct_from
from cory_env.tokenizer import HFTokenizer, Tokenizer


def check_runs(runs: Iterable[PlannedRun], graded: Collection[tuple[str, str]] = ()) -> None:
    """Try what every arm needs on every task: its model, data and judge, or its players, once each.

    Weights of models that train are not read. ValueError, with arm and task, if something cannot be found or
    loaded, or if nothing tells right from wrong for the arms and tasks that are `graded`.
    """
    tried = set()
    for run in runs:
        config = Config.from_flat({name: value for name, value in run.settings.items() if name != TARGET})
        policy = config.policy
        parts = (config.task, config.task_options, config.judge, config.judge_options)
        right = (run.arm, run.task) in graded and config.evaluation.threshold is None
        key = repr((*parts, policy.kind, policy.model, policy.models, run.settings.get(TARGET), right))
        if key in tried:
            continue
        tried.add(key)
        try:
            if run.is_trained:
                _try_task(config, graded=right)
            else:
                check_target(make_target(run.settings))
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


def _try_task(config: Config, *, graded: bool) -> None:
    """Make the task, with its data and judge, in the tokens of the model; ValueError if there is none."""
    kind = config.policy.kind
    tokens: list[Tokenizer] = []
    if kind != "table":
        if kind != "lora_team" and not issubclass(policy_class(kind), CausalLMPolicy):
            return  # only the policy itself knows its tokens
        for model in config.policy.models or (config.policy.model,):
            tokenizer = load_tokenizer(model)
            eos = {tokenizer.eos_token_id or 0}  # but for ids that only the generation config names
            tokens.append(HFTokenizer(tokenizer, eos=eos))
    on_cpu = replace(config, policy=replace(config.policy, device="cpu"))
    task = make_task(on_cpu, *tokens[:1])
    with closing(task):
        if graded and correct_from(task) is None:
            raise ValueError(
                "it is compared by how many responses are right, and neither task nor judge says from "
                "which score one is; give evaluation.threshold"
            )
