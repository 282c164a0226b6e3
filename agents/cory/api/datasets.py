"""Data sets in memory as files beside the run, so that it can be resumed and evaluated."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cory.runtime.files import write_text


def with_dataset(settings: Mapping[str, Any], dataset: Any, folder: Path) -> dict[str, Any]:
    """Settings with the task `prompts` (unless another is named) on this data."""
    path = Path(dataset) if isinstance(dataset, str | Path) else _written(dataset, folder)
    task = settings.get("task", "prompts")
    if not isinstance(task, str):
        raise ValueError(
            f"task is a {type(task).__name__}; name the task beside its options, as task='prompts'"
        )
    return {**settings, "task": task, "task.data": str(path)}


def _written(dataset: Any, folder: Path) -> Path:
    """Rows in memory as JSON lines under a name that is a hash of them; a folder for several splits."""
    if isinstance(dataset, Mapping):
        texts = {f"{split}.jsonl": _jsonl(rows) for split, rows in dataset.items()}
        digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
        target = folder / digest
        for name, text in texts.items():
            _write_once(target / name, text)
        return target
    text = _jsonl(dataset)
    target = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    _write_once(target, text)
    return target


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise ValueError(f"a row of the dataset is {row!r:.80}; give dicts such as {{'prompt': '...'}}")
        try:
            lines.append(json.dumps(dict(row), ensure_ascii=False))
        except TypeError as error:
            raise ValueError(
                f"a row of the dataset cannot be written as JSON ({error}): {row!r:.120}"
            ) from error
    if not lines:
        raise ValueError("the dataset is empty; give one row or more")
    return "\n".join(lines) + "\n"


def _write_once(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
