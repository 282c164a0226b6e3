"""Rows of a data set by split: a parquet, CSV, JSON or JSONL file, a folder of them, or a name on the Hub."""

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
"""The split of a file on its own, which `separate` divides."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One file or one split of the Hub; a column is read when asked for."""

    where: str
    """What error messages call it."""

    columns: tuple[str, ...]
    """The columns it has, in its order."""

    values: Callable[[str], list[Any]]
    """The column of this name, one value per row; None where a row has none."""

    def pick(self, choices: Sequence[str]) -> str:
        """The first of `choices` among its columns; where none is, the columns it has are listed."""
        if not self.columns:
            raise ValueError(f"{self.where} is empty; give a file with rows")
        found = next((name for name in choices if name in self.columns), None)
        if found is None:
            raise ValueError(
                f"{self.where} has no column {' or '.join(map(repr, choices))}; "
                f"its columns are {', '.join(map(repr, self.columns))}"
            )
        return found

    def texts(self, name: str, *, listed: bool = False) -> list[str]:
        """The column `name` as text: numbers are written out, anything else is refused with its row.

        `listed` takes a list of one for what it holds.
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
                    f"{str(value)[:60]!r}; drop the row or mend it"
                )
        return values


def read_rows(
    data: str | Path,
    columns: Mapping[str, Sequence[str]],
    *,
    config: str | None = None,
    listed: Collection[str] = (),
) -> dict[str, list[Row]]:
    """The rows of `data` by split, as `read_tables` finds them; each holds texts under our names.

    `columns` says under which names of theirs each of ours may stand, likeliest first. Those of ours in
    `listed` may stand there as lists of one.
    """
    rows: dict[str, list[Row]] = {}
    for split, found in read_tables(data, config=config).items():
        rows[split] = []
        for table in found:
            texts = {
                ours: table.texts(table.pick(choices), listed=ours in listed)
                for ours, choices in columns.items()
            }
            rows[split] += [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    return rows


def read_tables(data: str | Path, *, config: str | None = None) -> dict[str, list[Table]]:
    """The tables of `train` and `test`, or of `WHOLE` for a single file.

    The files of a folder belong to the split that their names start with. What is no local path but reads
    `owner/name` is fetched from the Hub, in its configuration `config`.
    """
    path = Path(data)
    if path.is_dir():
        return {split: _folder(path, split) for split in SPLITS}
    if not path.exists() and path.suffix not in READERS and HUB_NAME.fullmatch(path.as_posix()):
        return {split: [_hub(path.as_posix(), split, config)] for split in SPLITS}
    return {WHOLE: [read_table(path)]}


def separate(rows: Mapping[str, Sequence[Row]], key: str, *, where: str | Path) -> dict[str, list[Row]]:
    """Train and test rows that share no text of `key`; of rows with the same text the first is kept.

    `WHOLE` is divided 80/20 by the sha256 of that text, so that a row's split does not depend on the others.
    """
    split = {name: list(rows.get(name, ())) for name in SPLITS}
    for row in rows.get(WHOLE, ()):
        split["test" if text_hash(row[key]) % 5 == 0 else "train"].append(row)
    train, test = (_by_text(split[name], key) for name in SPLITS)
    kept = {"train": [*train.values()], "test": [row for text, row in test.items() if text not in train]}
    for name, found in kept.items():
        if not found:
            raise ValueError(
                f"{where} has no rows for {name} ({len(split[name])} read, less those that train has too); "
                "give more"
            )
    return kept


def _by_text(rows: Sequence[Row], key: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row[key], row)
    return found


def text_hash(text: str) -> int:
    """A number from 0 to 2^64 - 1 that depends on the text alone, whatever the process."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def read_table(path: Path) -> Table:
    """One parquet, CSV, JSON or JSONL file, refused by name where it is anything else."""
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
    return _listed(path, rows, heading)


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
    return _listed(path, rows, list(dict.fromkeys(name for row in rows for name in row)))


def _listed(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Table:
    return Table(where=str(path), columns=tuple(names), values=lambda name: [row.get(name) for row in rows])


READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Local files by suffix."""


def _folder(path: Path, split: str) -> list[Table]:
    files = sorted(file for file in path.iterdir() if file.is_file())
    own = [file for file in files if file.name.startswith(split)]
    if not own:
        names = ", ".join(file.name for file in files[:20]) or "no file"
        raise ValueError(
            f"{path} has no split {split!r}: files named {split}* are needed and it holds {names}"
        )
    return [read_table(file) for file in own]


def _hub(name: str, split: str, config: str | None) -> Table:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"fetching {name} needs the package datasets: pip install datasets") from error
    try:
        found = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # whatever the network, the Hub or a missing split makes it raise
        raise ValueError(
            f"no file or folder is called {name}, and the Hub gave no split {split!r} of that name: {error}"
        ) from error
    return Table(
        where=f"{name}, {split}",
        columns=tuple(found.column_names),
        values=lambda column: list(found[column]),
    )
