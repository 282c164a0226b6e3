"""Upload of a run's policies to the Hugging Face hub, with a model card made from the run."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory.config.parsing import flat
from cory.evaluation import records
from cory.report.model_card import HUB_NAME, is_hub_name, make_card
from cory.runtime import hub
from cory.runtime.files import read_json
from cory.tracking.tracker import read as read_metrics
from cory.training import checkpoint
from cory.training.targets import find


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What is uploaded: files by their path in the repository, and the card."""

    repo: str
    files: dict[str, Path]
    card: str

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path in self.files.values()) + len(self.card.encode())


def prepare(run: str | Path, repo: str, *, policies: Sequence[str] = (), online: bool = True) -> Upload:
    """Collect the exported policies of a run, by default all of them, and make their card.

    One policy lies at the root of the repository, several in a subfolder each. ValueError for a run without
    exported policies, an unknown policy, and adapters on a base that only this machine has.
    """
    run = Path(run).expanduser()
    if not HUB_NAME.fullmatch(repo):
        raise ValueError(f"{repo!r} is no name of a repository; give owner/name")
    folders = {path.name: path for path in sorted(run.glob("policies/*")) if path.is_dir()}
    if not folders:
        raise ValueError(f"{run} holds no exported policies; name the directory of a finished run")
    if unknown := [name for name in policies if name not in folders]:
        raise ValueError(f"{run} has no policy {unknown[0]!r}; it has {', '.join(folders)}")
    names = list(policies) or list(folders)
    files: dict[str, Path] = {}
    for name in names:
        _check_base(folders[name])
        prefix = "" if len(names) == 1 else f"{name}/"
        for path in sorted(one for one in folders[name].rglob("*") if one.is_file()):
            if path.name != "README.md":
                files[prefix + path.relative_to(folders[name]).as_posix()] = path
    files["config.yaml"] = run / "config.yaml"
    config = find(str(run)).config
    best = checkpoint.read_best(run) if config.export_best else None
    environment = read_json(run / "environment.json")
    results, intervals, measured = held_out(run, config.task)
    card = make_card(
        names,
        flat(config),
        iterations=None if best is None else best["iteration"],
        repo=repo,
        results=results,
        intervals=intervals,
        measured=measured,
        templates=environment.get("templates"),
        online=online,
    )
    return Upload(repo=repo, files=files, card=card)


def push(
    run: str | Path,
    repo: str,
    *,
    policies: Sequence[str] = (),
    private: bool = False,
    token: str | None = None,
) -> str:
    """Upload the policies of a run in one commit; the address of the repository.

    The repository is made if there is none. Without `token` that of `hf auth login` or HF_TOKEN is used.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants

    upload = prepare(run, repo, policies=policies)
    if not hub.is_reachable():
        raise ValueError(f"the hub ({constants.ENDPOINT}) cannot be reached; go online, or try a dry run")
    api = HfApi(token=token)
    address = api.create_repo(repo, private=private, exist_ok=True)
    operations = [CommitOperationAdd(path, str(file)) for path, file in upload.files.items()]
    operations.append(CommitOperationAdd("README.md", upload.card.encode()))
    api.create_commit(repo, operations, commit_message=f"Upload policies of {Path(run).resolve().name}")
    return str(address)


def held_out(run: Path, task: str) -> tuple[dict[str, dict[str, float]], dict[str, Any], str]:
    """Return metrics, intervals and description of a run's own task on held-out queries.

    They are those of `cory evaluate` with the most queries, else of the last evaluation of the run.
    """
    evaluations = [one for one in records.read_all(run) if one["measured"]["task"] == task]
    if evaluations:
        best = max(evaluations, key=lambda one: one["measured"]["queries"])
        return _finite(best["metrics"]), best["intervals"], records.describe(best["measured"])
    rows = [row for row in read_metrics(run) if any(key.startswith("eval/") for key in row)]
    found: dict[str, dict[str, float]] = {}
    for key, value in (rows[-1] if rows else {}).items():
        if key.startswith("eval/"):
            _, policy, quantity = key.split("/")
            found.setdefault(policy, {})[quantity] = value
    return _finite(found), {}, f"task {task}, at the end of the run"


def _finite(metrics: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float]]:
    return {
        name: {key: value for key, value in of.items() if value is not None and math.isfinite(value)}
        for name, of in metrics.items()
    }


def _check_base(folder: Path) -> None:
    """Raise ValueError for an adapter whose base is not on the hub."""
    path = folder / "adapter_config.json"
    if path.is_file():
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path") or ""
        if not is_hub_name(base):
            raise ValueError(
                f"the adapter {folder} is based on {base!r}, which is not on the hub; export whole models "
                f"first: cory train --run {folder.parents[1]} --resume must --export merged"
            )
