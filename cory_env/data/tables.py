"""Tables of a data set by split, from a parquet, CSV, JSON or JSONL file, a folder of them, or the Hub."""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")

SPLITS = ("train", "test")

WHOLE = "whole"
"""The split of a single file, which `separate` divides into train and test."""


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
                f"its columns are {', '.join(map(repr, self.columns))}"
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
    """Open the tables of `train` and `test`, or of `WHOLE` for a single file.

    The files of a folder belong to the split that their names start with. A `data` of the form `owner/name`
    that is no local path is fetched from the Hub, in its configuration `config`.
    """
    path = Path(data)
    if path.is_dir():
        return {split: _folder(path, split) for split in SPLITS}
    if not path.exists() and path.suffix not in READERS and HUB_NAME.fullmatch(path.as_posix()):
        return {split: [_hub(path.as_posix(), split, config)] for split in SPLITS}
    return {WHOLE: [read_table(path)]}


def separate(rows: Mapping[str, Sequence[Row]], key: str, *, where: str | Path) -> dict[str, list[Row]]:
    """Return train and test rows that share no text under `key`; of rows with the same text the first stays.

    `WHOLE` is divided 80/20 by the sha256 of that text, so that a row's split does not depend on other rows.
    """
    split = {name: list(rows.get(name, ())) for name in SPLITS}
    for row in rows.get(WHOLE, ()):
        split["test" if text_hash(row[key]) % 5 == 0 else "train"].append(row)
    train, test = (_by_text(split[name], key) for name in SPLITS)
    unique = {"train": [*train.values()], "test": [row for text, row in test.items() if text not in train]}
    for name, of_split in unique.items():
        if not of_split:
            raise ValueError(
                f"{where} has no rows for {name} ({len(split[name])} read, less those that train has too); "
                "give more"
            )
    return unique


def _by_text(rows: Sequence[Row], key: str) -> dict[str, Row]:
    """Return text -> the first row with that text under `key`."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row[key], row)
    return first


def text_hash(text: str) -> int:
    """Hash a text to a number from 0 to 2^64 - 1, the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def read_table(path: Path) -> Table:
    """Open a parquet, CSV, JSON or JSONL file; any other or malformed file is a ValueError with its name."""
    if path.suffix not in READERS:
        raise ValueError(
            f"{path} is not a {', '.join(READERS)} file; give one, a folder of them, or owner/name on the Hub"
        )
    try:
        return READERS[path.suffix](path)
    except (OSError, ValueError, csv.Error) as error:
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


def _folder(path: Path, split: str) -> list[Table]:
    files = sorted(file for file in path.iterdir() if file.is_file())
    of_split = [file for file in files if file.name.startswith(split)]
    if not of_split:
        names = ", ".join(file.name for file in files[:20]) or "no file"
        raise ValueError(
            f"{path} has no split {split!r}: files named {split}* are needed and it holds {names}"
        )
    return [read_table(file) for file in of_split]


def _hub(name: str, split: str, config: str | None) -> Table:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"fetching {name} needs the package datasets: pip install datasets") from error
    try:
        dataset = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the network, the Hub and a missing split raise many kinds
        raise ValueError(
            f"no file or folder is called {name}, and the Hub gave no split {split!r} of that name: {error}"
        ) from error
    return Table(
        where=f"{name}, {split}",
        columns=tuple(dataset.column_names),
        values=lambda column: list(dataset[column]),
    )
