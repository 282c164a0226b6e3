"""Data sets in memory as files beside the run, so that it can be resumed and evaluated."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any

import numpy as np

from cory.runtime.files import write_text
from cory_env.data.tables import STARTS
from cory_env.tasks.prompts import COLUMNS

GIVEN = "the dataset"
"""What messages call data in memory."""


def with_dataset(settings: Mapping[str, Any], dataset: Any, folder: Path) -> dict[str, Any]:
    """Settings with the task `prompts` (unless another is named) on this data."""
    path = Path(dataset) if isinstance(dataset, str | Path) else _written(dataset, folder)
    return {"task": "prompts", **settings, "task.data": str(path)}


@contextmanager
def named_as_given(dataset: Any, path: str) -> Iterator[None]:
    """Call data in memory `GIVEN` in errors, whatever the file they were written to."""
    try:
        yield
    except ValueError as error:
        if dataset is None or isinstance(dataset, str | Path):
            raise
        raise ValueError(str(error).replace(path, GIVEN)) from error


def _written(dataset: Any, folder: Path) -> Path:
    """Rows in memory as JSON lines under a name that is a hash of them; a folder for several splits."""
    if _is_splits(dataset):
        texts = {f"{split}.jsonl": _jsonl(rows, f"{GIVEN}, {split}") for split, rows in dataset.items()}
        target = folder / _hash(*(part for file in texts.items() for part in file))
        for name, text in texts.items():
            _write(target / name, text)
        return target
    text = _jsonl(dataset, GIVEN)
    target = folder / f"{_hash(text)}.jsonl"
    _write(target, text)
    return target


def _is_splits(dataset: Any) -> bool:
    """Whether a mapping holds rows by split; one with a column of prompts may have a column `test`."""
    names = set(dataset) if isinstance(dataset, Mapping) else set()
    return not names.isdisjoint(STARTS) and names.isdisjoint(COLUMNS)


def _hash(*texts: str) -> str:
    """A hash of texts that differs if they are divided otherwise."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _rows(data: Any, where: str) -> Iterable[Any]:
    """The rows of a list, of an object of `datasets`, pandas or pyarrow, or of a dict of columns."""
    library = type(data).__module__.partition(".")[0]
    if library == "pandas":
        data = data.to_frame() if hasattr(data, "to_frame") else data  # a series
        missing = data.isna()
        return data.astype(object).mask(missing, None).to_dict("records")  # type: ignore[no-any-return]
    if library == "pyarrow":
        return data.to_pylist()  # type: ignore[no-any-return]
    if not isinstance(data, Mapping):
        return data  # type: ignore[no-any-return]
    try:
        lengths = {str(name): len(values) for name, values in data.items() if not isinstance(values, str)}
    except TypeError:
        lengths = {}
    if len(lengths) < len(data) or len(set(lengths.values())) != 1:
        raise ValueError(
            f"{where} is a dict of {', '.join(map(repr, data))}; give lists of rows by split, as "
            "{'train': [...], 'test': [...]}, or columns of one length, as {'prompt': [...], 'answer': [...]}"
        )
    return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]


def _jsonl(data: Any, where: str) -> str:
    lines = []
    for number, item in enumerate(_rows(data, where), start=1):
        row = (
            {"text": item}
            if isinstance(item, str)
            else {"messages": item}
            if isinstance(item, list)
            else item
        )
        if not isinstance(row, Mapping):
            raise ValueError(
                f"row {number} of {where} is {row!r:.80}; give texts, or dicts such as {{'prompt': '...'}}"
            )
        lines.append(_as_json(row, f"row {number} of {where}"))
    if not lines:
        raise ValueError(f"{where} is empty; give one row or more")
    return "\n".join(lines) + "\n"


def _as_json(row: Mapping[str, Any], where: str) -> str:
    """One line of JSON; ValueError with the column for a value that JSON in UTF-8 cannot hold."""
    cells = []
    for name, value in row.items():
        try:
            cells.append(json.dumps({name: value}, ensure_ascii=False, default=_plain)[1:-1])
            cells[-1].encode()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{where} cannot be written as JSON: column {name!r} holds {value!r:.80} ({error}); give "
                "texts, numbers, dates, and lists and dicts of them"
            ) from error
    return "{" + ", ".join(cells) + "}"


def _plain(value: Any) -> Any:
    """A value as JSON holds it: dates in ISO format, bytes as UTF-8, NumPy's values as Python's."""
    if isinstance(value, date | time):  # pandas' timestamps are dates
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON")


def _write(path: Path, text: str) -> None:
    """Write a file unless it holds this text already."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")  # another process may write the same
    write_text(part, text)
    part.replace(path)
