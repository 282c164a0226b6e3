"""Tables of a data set by split, from a parquet, CSV, JSON or JSONL file, a folder of them, or the Hub."""

import csv
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory_env.data.splits import WHOLE

Row = dict[str, Any]

HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")

SPLITS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "dev"),
    "test": ("test",),
}
"""Splits, and the names they have on the Hub or at the start of a file name; validation may be missing."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One file, or one split of a data set on the Hub; columns are read lazily."""

    where: str
    """Its name in error messages."""

    columns: tuple[str, ...]
    """The names of its columns, in its order."""

    values: Callable[[str], list[Any]]
    """Reads the column of this name: one value per row, None if the row has none."""

    def pick(self, choices: Sequence[str]) -> str:
        """Return the first of `choices` among its columns; if none is, the error lists the columns it has."""
        if not self.columns:
            raise ValueError(f"{self.where} is empty; give a file with rows")
        column = next((name for name in choices if name in self.columns), None)
        if column is None:
            raise ValueError(
                f"{self.where} has no column {' or '.join(map(repr, choices))}; "
                f"its columns are {', '.join(map(repr, self.columns))} (--task.column names one)"
            )
        return column

    def texts(self, name: str, *, listed: bool = False) -> list[str]:
        """Read the column `name` as text; numbers are converted, any other value is a ValueError.

        With `listed`, a list of one item counts as that item.
        """
        values = self.values(name)
        for number, value in enumerate(values):
            if listed and isinstance(value, list) and len(value) == 1:
                value = values[number] = value[0]
            if isinstance(value, int | float) and not isinstance(value, bool):
                values[number] = str(value)
            elif not isinstance(value, str):
                raise ValueError(
                    f"row {number + 1} of {self.where} has no text in column {name!r} but "
                    f"{str(value)[:60]!r}; drop or correct the row"
                )
        return values


def read_rows(
    data: str | Path,
    columns: Mapping[str, Sequence[str]],
    *,
    config: str | None = None,
    listed: Collection[str] = (),
) -> dict[str, list[Row]]:
    """Read the rows of `data` by split; each row holds texts under the keys of `columns`.

    `columns` maps each key to the possible names of its column in the data, the likeliest first. The columns
    of the keys in `listed` may hold lists of one item. The splits are those of `read_tables`.
    """
    rows: dict[str, list[Row]] = {}
    for split, split_tables in read_tables(data, config=config).items():
        rows[split] = []
        for table in split_tables:
            texts = {
                key: table.texts(table.pick(choices), listed=key in listed)
                for key, choices in columns.items()
            }
            rows[split] += [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    return rows


def read_tables(data: str | Path, *, config: str | None = None) -> dict[str, list[Table]]:
    """Open the tables of `train`, `test` and, if the data have it, `validation`; of a single file, `WHOLE`.

    The files of a folder belong to the split that their names start with (`SPLITS`). A `data` of the form
    `owner/name` that is no local path is fetched from the Hub, in its configuration `config`.
    """
    path = Path(data)
    if path.is_dir():
        return _folder(path)
    if not path.exists() and path.suffix not in READERS and HUB_NAME.fullmatch(path.as_posix()):
        return _hub(path.as_posix(), config)
    return {WHOLE: [read_table(path)]}


def read_table(path: Path) -> Table:
    """Open a parquet, CSV, JSON or JSONL file; any other or malformed file is a ValueError with its name."""
    if path.suffix not in READERS:
        raise ValueError(
            f"{path} is not a {', '.join(READERS)} file; give one, a folder of them, or owner/name on the Hub"
        )
    try:
        return READERS[path.suffix](path)
    except (OSError, ValueError, csv.Error) as error:
        if not path.exists():
            raise ValueError(f"there is no file {path}") from error
        raise ValueError(f"{path} cannot be read as {path.suffix} ({error})") from error


def _parquet(path: Path) -> Table:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(f"reading {path} needs the package pyarrow: pip install pyarrow") from error
    table = pq.read_table(path)
    return Table(
        where=str(path), columns=tuple(table.column_names), values=lambda name: table[name].to_pylist()
    )


def _csv(path: Path) -> Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows, heading = list(reader), reader.fieldnames or ()
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise ValueError(f"row {number} has more fields than the heading; quote texts with commas")
    return _in_memory(path, rows, heading)


def _jsonl(path: Path) -> Table:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is {str(row)[:60]!r}; each line must be a JSON object")
    return _objects(path, rows)


def _json(path: Path) -> Table:
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it must hold one list of objects")
    return _objects(path, rows)


def _objects(path: Path, rows: Sequence[Row]) -> Table:
    return _in_memory(path, rows, list(dict.fromkeys(name for row in rows for name in row)))


def _in_memory(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Table:
    return Table(where=str(path), columns=tuple(names), values=lambda name: [row.get(name) for row in rows])


READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Readers of local files by suffix."""


def _folder(path: Path) -> dict[str, list[Table]]:
    files = sorted(file for file in path.iterdir() if file.is_file())
    found: dict[str, list[Table]] = {}
    for split, starts in SPLITS.items():
        found[split] = [read_table(file) for file in files if file.name.startswith(starts)]
        if not found[split] and split != "validation":
            names = ", ".join(file.name for file in files[:20]) or "no file"
            raise ValueError(
                f"{path} has no split {split!r}: files named {split}* are needed and it holds {names}"
            )
    return {split: tables for split, tables in found.items() if tables}


def _hub(name: str, config: str | None) -> dict[str, list[Table]]:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"fetching {name} needs the package datasets: pip install datasets") from error
    try:
        by_split = datasets.load_dataset(name, config)
    except Exception as error:  # the network and the Hub raise many kinds
        raise ValueError(
            f"no file or folder is called {name}, and the Hub gave no data set of that name: {error}"
        ) from error
    found: dict[str, list[Table]] = {}
    for split, names in SPLITS.items():
        known = next((known for known in names if known in by_split), None)
        if known is not None:
            found[split] = [_hub_table(f"{name}, {known}", by_split[known])]
        elif split != "validation":
            raise ValueError(
                f"no file or folder is called {name}, and the Hub gave no split {split!r} of that name: "
                f"it has {', '.join(by_split)}"
            )
    return found


def _hub_table(where: str, dataset: Any) -> Table:
    return Table(
        where=where,
        columns=tuple(dataset.column_names),
        values=lambda column: list(dataset[column]),
    )
