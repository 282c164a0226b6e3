"""The JSON files of a run directory, and what each of the evaluations among them measured.

Imports no game, so that the report can read the files.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.runtime.files import read_json

FOLDER = "evaluations"
EXPORTED = "exported.json"
BEST = "checkpoints/best.json"

DEFINING = (
    "task", "judge", "evaluation", "max_response", "seats", "turns", "players", "sees", "payoff", "kl.coef",
    "policy.model", "policy.models", "policy.temperature", "policy.precision",
)  # fmt: skip
"""Settings, and groups of them, that the numbers of an evaluation depend on."""

DURING = ("evaluation.every", "evaluation.team", "evaluation.average")
"""Settings that say what is evaluated during training."""
IRRELEVANT = (*DURING, "evaluation.queries", "judge.memory_mb", "judge.timeout", "judge.max_failures")
"""Settings of these groups that change no number; the queries are recorded by what they are."""


def defining(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run's flat settings that the numbers of an evaluation depend on."""
    return {
        name: value
        for name, value in settings.items()
        if name not in IRRELEVANT and any(name == part or name.startswith(f"{part}.") for part in DEFINING)
    }


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that are not equal in all, in the order of the first."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if any(each.get(name) != settings[0].get(name) for each in settings)]


def written(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    """Settings as `seats=1, exchange.every=0`, without those it does not have."""
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def other_settings(measured: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """What was measured with another setting than a run has: `kl.coef 2.0 (run: 0.2)`."""
    values = measured["settings"]
    names = (name for name in values if name in config and config[name] != values[name])
    return [f"{name} {values[name]} (run: {config[name]})" for name in names]


def policies_of(run: Path) -> dict[str, Path]:
    """The folder of each exported policy of a run."""
    return {path.name: path for path in sorted(run.glob("policies/*/"))}


def exported(run: Path) -> dict[str, str]:
    """The sha256 of each exported policy of a run."""
    return {name: files_sha256(folder) for name, folder in policies_of(run).items()}


def environment_of(run: Path) -> dict[str, Any]:
    """The `environment.json` of a run, {} without the file; ValueError if it is damaged."""
    path = run / "environment.json"
    return read_json(path) if path.is_file() else {}


def export_of(run: Path) -> dict[str, Any]:
    """A run's `iterations` when it was exported, and `after` which its policies are; {} if not recorded."""
    return read_whole(run / EXPORTED) or {}


def best_of(run: Path) -> dict[str, Any] | None:
    """The `iteration` and validation `score` of the best checkpoint so far.

    None if none was recorded or the file is damaged: the next evaluation records it again.
    """
    return read_whole(run / BEST, "iteration", "score")


def read_whole(path: Path, *parts: str) -> dict[str, Any] | None:
    """A JSON object; None for a file that is missing, damaged, or lacks one of the parts."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return None
    return content if content.keys() >= set(parts) else None


def other_weights(policies: Mapping[str, str], measured: Mapping[str, Any]) -> list[str]:
    """Those of the `exported` policies whose weights are not those that were measured."""
    of = {
        name: one["sha256"] if isinstance(one, Mapping) else one for name, one in measured["weights"].items()
    }
    return [name for name in of if name in policies and of[name] != policies[name]]


def path_of(run: Path, measured: Mapping[str, Any]) -> Path:
    """The file of a measurement: `evaluations/<task>-<hash>.json`, with a hash of `measured`.

    The same measurement has the same file, and any other has another one.
    """
    task = re.sub(r"[^\w.-]+", "-", measured["task"])
    digest = hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()
    return run / FOLDER / f"{task}-{digest[:8]}.json"


def read_all(run: Path) -> list[dict[str, Any]]:
    """The evaluation summaries in a run directory by file name, without incomplete files."""
    paths = sorted((run / FOLDER).glob("*.json"))
    return [one for path in paths if (one := read_whole(path, "measured", "data")) is not None]


def describe(measured: Mapping[str, Any]) -> str:
    """Task, judge, number of queries and samples, and sampling in one line."""
    judge = "its own score" if measured["judge"] is None else f"judge {measured['judge']}"
    samples = f"{measured['samples']} sample{'s' if measured['samples'] > 1 else ''} each"
    return (
        f"task {measured['task']}, {judge}, {measured['queries']} {measured['split']} queries, {samples}, "
        f"{measured['sampling']} sampling"
    )


def files_sha256(folder: Path) -> str:
    """The sha256 of the files of a policy's folder and their names.

    The model card is left out, and hidden files, such as those of a file manager.
    """
    digest = hashlib.sha256()
    files = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    for path in sorted(path for path in files if path.name != "README.md"):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def texts_sha256(texts: Iterable[str]) -> str:
    """The sha256 of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
