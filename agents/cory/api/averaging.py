"""`cory.average`: one policy whose weights are the mean of several."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from cory.evaluation.averaging import averaged
from cory.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from cory.runtime.files import let_read, system_errors
from cory.training import factory
from cory.training.targets import find

SOURCES = "average.json"
"""Beside the weights: what they are the mean of."""


def average(
    targets: Sequence[str | os.PathLike[str]], out: str | Path, *, weights: Sequence[float] | None = None
) -> Path:
    """Write the weighted mean of the policies' weights as a model folder; its path.

    Means are useful of policies that were trained from one model: the two of a run, runs of several seeds, or
    a policy and the model it came from, which interpolates between them (WARP, arXiv:2406.16768).

    Args:
        targets: Runs (all their policies), checkpoints, or folders of models or adapters.
        out: Folder to write, which must not exist or be empty.
        weights: One per policy, of any sum but 0; by default equal.

    Raises:
        ValueError: For fewer than two policies, unlike shapes or tokenizers, or a folder that is in use.
    """
    folder = Path(out).expanduser()
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is no folder"
        raise ValueError(f"{folder} {what}; name another folder for the average")
    named = [find(os.fspath(target)) for target in targets]
    sources = [(target, name, path) for target in named for name, path in target.folders.items()]
    if len(sources) < 2:
        names = ", ".join(path for _, _, path in sources)
        raise ValueError(f"an average needs two policies or more; {names} is one")
    if any(target.config.policy.kind == "table" for target in named):
        raise ValueError("only language models are averaged; a lookup table is no model folder")
    policies = [factory.load_policy(name, target.config, path) for target, name, path in sources]
    models = [policy for policy in policies if isinstance(policy, CausalLMPolicy)]
    if len(models) < len(policies):
        raise ValueError("only language models are averaged; a policy of your own kind has no model folder")
    check_same_tokenizer(models)
    with system_errors(folder), averaged(policies, weights) as mean:
        mean.save_merged(folder)
    used = [1 / len(policies)] * len(policies) if weights is None else list(weights)
    content = {"mean_of": [path for _, _, path in sources], "weights": used}
    (folder / SOURCES).write_text(json.dumps(content, indent=1), encoding="utf-8")
    let_read(folder)
    return folder
