"""Upload of a run's policies to the Hugging Face hub, with a model card made from the run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cory.config.schema import Config
from cory.config.values import flat
from cory.evaluation import records
from cory.policies.loading import base_of
from cory.report.model_card import HUB_NAME, is_hub_name, make_card, without_folders
from cory.runtime import hub, yaml_files
from cory.runtime.files import read_json
from cory.tracking.tracker import curves
from cory.tracking.tracker import read as read_metrics
from cory.training.targets import is_exported

UPLOADED = (
    *("config.json", "generation_config.json", "adapter_config.json", "backbone.json"),
    *("*.safetensors", "model.safetensors.index.json"),
    *("tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json"),
)
"""Names of the files that make a policy; nothing else of its folder is uploaded."""


def prepare(run: str | Path, repo: str, *, policies: Sequence[str] = ()) -> dict[str, Path | bytes]:
    """Collect the exported policies of a run, by default all of them: files by their path in the repository.

    One policy lies at the root, several in a subfolder each; `README.md` is their card, `config.yaml` the
    settings without folders of this machine. ValueError for a run without exported policies, an unknown
    policy, and adapters on a base that only this machine has.
    """
    run = Path(run).expanduser()
    if not HUB_NAME.fullmatch(repo):
        raise ValueError(f"{repo!r} is no name of a repository; give owner/name")
    folders = records.policies_of(run)
    if not folders:
        raise ValueError(f"{run} holds no exported policies; name the directory of a finished run")
    if unknown := [name for name in policies if name not in folders]:
        raise ValueError(f"{run} has no policy {unknown[0]!r}; it has {', '.join(folders)}")
    names = list(policies) or list(folders)
    files: dict[str, Path | bytes] = {}
    for name in names:
        _check_base(folders[name])
        prefix = "" if len(names) == 1 else f"{name}/"
        for path in sorted(folders[name].iterdir()):
            if any(path.match(pattern) for pattern in UPLOADED):
                files[prefix + path.name] = check_plain(path)
    stored = yaml_files.read_mapping(check_plain(run / "config.yaml"), "settings file")
    config = flat(Config()) | stored  # as data: what else the settings name is not imported
    if not is_exported(run):
        raise ValueError(
            f"{run} went on after its policies were exported, and no evaluation is of them; finish it with "
            f"cory train --run {run} --resume must"
        )
    at = records.export_of(run).get("after", config["iterations"])
    results, intervals, measured = held_out(run, config, at=at)
    card = make_card(
        names,
        config,
        iterations=at,
        repo=repo,
        results=results,
        intervals=intervals,
        measured=measured,
        templates=read_json(run / "environment.json").get("templates"),
    )
    settings = {name: without_folders(value) for name, value in stored.items()}
    files["config.yaml"] = yaml.safe_dump(settings, sort_keys=False).encode()
    files["README.md"] = card.encode()
    return files


def push(
    run: str | Path,
    repo: str,
    *,
    policies: Sequence[str] = (),
    public: bool = False,
    token: str | None = None,
) -> str:
    """Upload the policies of a run in one commit; the address of the repository.

    The repository is made if there is none, private unless `public`. Without `token` that of `hf auth login`
    or HF_TOKEN is used.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants

    files = prepare(run, repo, policies=policies)
    if not hub.is_reachable():
        raise ValueError(f"the hub ({constants.ENDPOINT}) cannot be reached; go online, or try a dry run")
    api = HfApi(token=token)
    address = api.create_repo(repo, private=not public, exist_ok=True)
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    api.create_commit(repo, operations, commit_message=f"Upload policies of {Path(run).resolve().name}")
    return str(address)


def held_out(
    run: Path, config: Mapping[str, Any], *, at: int
) -> tuple[dict[str, dict[str, float]], dict[str, Any], str]:
    """Return metrics, intervals and description of the exported policies on held-out queries.

    They are those of `cory evaluate` with the run's settings and the most queries, else of the run's
    evaluation after iteration `at`.
    """
    fitting = [
        one
        for one in records.read_all(run)
        if one["measured"]["task"] == config["task"] and not records.other_settings(one["measured"], config)
    ]
    policies = records.exported(run) if fitting else {}
    if fitting := [one for one in fitting if not records.other_weights(policies, one["measured"])]:
        best = max(fitting, key=lambda one: one["measured"]["queries"])
        return _finite(best["metrics"]), best["intervals"], records.describe(best["measured"])
    metrics: dict[str, dict[str, float]] = {}
    for key, curve in curves(read_metrics(run)).items():
        values = dict(zip(curve.iterations, curve.values, strict=True))
        if key.place == "eval" and at in values:
            metrics.setdefault(key.policy, {})[key.quantity] = values[at]
    when = "at the end of the run" if at == config["iterations"] else f"after iteration {at}"
    return _finite(metrics), {}, f"task {config['task']}, {when}"


def check_plain(path: Path) -> Path:
    """The path itself; ValueError for a link, which could lead to anything, and for what is no file."""
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        raise ValueError(
            f"{path} is a link or no file, and only a run's own files are uploaded; copy it there"
        )
    return path


def _finite(metrics: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float]]:
    return {
        name: {key: value for key, value in of.items() if value is not None and math.isfinite(value)}
        for name, of in metrics.items()
    }


def _check_base(folder: Path) -> None:
    """Raise ValueError for an adapter whose base is not on the hub."""
    if (base := base_of(folder)) is not None and not is_hub_name(base):
        raise ValueError(
            f"the adapter {folder} is based on {base!r}, which is not on the hub; export whole models first: "
            f"cory train --run {folder.parents[1]} --resume must --export merged"
        )
