"""Tables of a data set by split, from a parquet, CSV, JSON or JSONL file, a folder of them, or the Hub.

Texts stay what the files hold; the CSV reader of `datasets` would make 7.0 of `007` and nothing of `null`.
"""

import codecs
import csv
import gzip
import io
import json
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory_env.data.splits import WHOLE
from cory_env.nearest import did_you_mean_path

Row = dict[str, Any]

HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")

SPLITS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Splits, and the names they have on the Hub or at the start of a file name; validation may be missing."""
STARTS = tuple(name for names in SPLITS.values() for name in names)


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
            if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
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
    """The rows of `data` by split (`read_tables`); each holds texts under the keys of `columns`.

    `columns` maps each key to the possible names of its column in the data, the likeliest first. The columns
    of the keys in `listed` may hold lists of one item.
    """
    rows: dict[str, list[Row]] = {}
    for split, split_tables in read_tables(data, config=config).items():
        rows[split] = []
        for table in split_tables:
            texts = [table.texts(table.pick(names), listed=key in listed) for key, names in columns.items()]
            rows[split] += [dict(zip(columns, row, strict=True)) for row in zip(*texts, strict=True)]
    return rows


def read_tables(data: str | Path, *, config: str | None = None) -> dict[str, list[Table]]:
    """Open the tables of `train`, `test` and, if the data have it, `validation`.

    The files of a folder belong to the split that their names start with (`SPLITS`). A `data` of the form
    `owner/name` that is no local path is fetched from the Hub, in its configuration `config`. A single file,
    and the train split of data without test, is `WHOLE`.
    """
    if not str(data).strip():
        raise ValueError("the name of the data is empty; give a file, a folder or owner/name on the Hub")
    path = Path(data)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        names = ", ".join(file.name for file in files[:20]) or "no file"
        missing = f"{path} has no split 'train': files named train* are needed and it holds {names}"
        by_split = {
            split: [read_table(file) for file in files if file.name.lower().startswith(starts)]
            for split, starts in SPLITS.items()
        }
        data_files = [file.name for file in files if suffix_of(file) in READERS and file.name[0] != "."]
        _warn_of_unused(path, [name for name in data_files if not name.lower().startswith(STARTS)])
    elif not path.exists() and suffix_of(path) not in READERS and HUB_NAME.fullmatch(path.as_posix()):
        name, on_hub = path.as_posix(), _from_hub(path.as_posix(), config)
        missing = (
            f"no file or folder is called {name}, and the Hub gave no split 'train' of that name: it has "
            f"{', '.join(on_hub)}"
        )
        by_split = {
            split: [_hub_table(f"{name}, {known}", on_hub[known]) for known in names if known in on_hub][:1]
            for split, names in SPLITS.items()
        }
        _warn_of_unused(name, [known for known in on_hub if known not in STARTS])
    else:
        return {WHOLE: [read_table(path)]}
    if not by_split["train"]:
        raise ValueError(missing)
    first = "train" if by_split["test"] else WHOLE
    return {first if split == "train" else split: tables for split, tables in by_split.items() if tables}


def _warn_of_unused(where: str | Path, names: Sequence[str]) -> None:
    if names:
        warnings.warn(
            f"{', '.join(names)} of {where} is not used: no name of a split (train, validation, test) is at "
            "its start",
            stacklevel=2,
        )


def read_table(path: Path) -> Table:
    """Open a parquet, CSV, JSON or JSONL file; any other or malformed file is a ValueError with its name."""
    suffix = suffix_of(path)
    if suffix not in READERS:
        raise ValueError(
            f"{path} is not a {', '.join(READERS)} file; give one, a folder of them, or owner/name on the Hub"
        )
    try:
        return READERS[suffix](path)
    except (OSError, EOFError, ValueError, csv.Error) as error:
        if not path.exists():
            raise ValueError(f"there is no file {path}{did_you_mean_path(path)}") from error
        raise ValueError(f"{path} cannot be read as {suffix} ({error})") from error


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in small letters, without `.gz`; `.csv` for the tab-separated `.tsv`."""
    name = Path(path.name.lower().removesuffix(".gz"))
    return name.suffix.replace(".tsv", ".csv")


def _text(path: Path) -> str:
    """Read a file, perhaps compressed, in UTF-8 or, if it begins with a mark that says so, UTF-16."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        data = gzip.decompress(data)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise ValueError(
            f"line {line} holds the byte 0x{data[error.start]:02x}, which is "
            "no UTF-8; save the file as UTF-8: iconv -f CP1252 -t UTF-8 if it is from Windows"
        ) from error


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
    """Open a table whose fields are separated as those of its heading: by commas, semicolons or tabs."""
    text = _text(path)
    delimiter = max("\t,;" if ".tsv" in path.name.lower() else ",;\t", key=text.partition("\n")[0].count)
    limit = csv.field_size_limit(min(len(text) + 1, 2**31 - 1))
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows, heading = list(reader), reader.fieldnames or ()
    finally:
        csv.field_size_limit(limit)
    if twice := sorted({name for name in heading if name and heading.count(name) > 1}):
        raise ValueError(f"its heading has {twice[0]!r} twice; give every column a name of its own")
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise ValueError(f"row {number} has more fields than the heading; quote texts with commas")
    return _in_memory(path, rows, heading)


def _jsonl(path: Path) -> Table:
    return _of_objects(path, _lines(_text(path)))


def _json(path: Path) -> Table:
    text = _text(path)
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        rows = _lines(text)  # JSON lines are often called .json
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it must hold one list of objects")
    return _of_objects(path, rows)


def _lines(text: str) -> list[Row]:
    """Read one JSON object a line; blank lines are no rows."""
    rows: list[Row] = []
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"row {len(rows) + 1}, on line {number}, is no JSON: {error.msg} at character {error.colno}"
            ) from error
        if not isinstance(row, dict):
            raise ValueError(f"row {len(rows) + 1} is {str(row)[:60]!r}; each line must be a JSON object")
        rows.append(row)
    return rows


def _of_objects(path: Path, rows: Sequence[Row]) -> Table:
    """ValueError for a row with half of a surrogate pair, as scrapers write."""
    for number, row in enumerate(rows, start=1):
        for name, value in row.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"row {number} holds half of a character in column {name!r}, {text[error.start]!a}; drop "
                    "or correct the row"
                ) from error
    return _in_memory(path, rows, list(dict.fromkeys(name for row in rows for name in row)))


def _in_memory(path: Path, rows: Sequence[Row], names: Sequence[str]) -> Table:
    return Table(where=str(path), columns=tuple(names), values=lambda name: [row.get(name) for row in rows])


READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""Readers of local files by `suffix_of`."""


def _from_hub(name: str, config: str | None) -> Any:
    """The data set of a name on the Hub, by split."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"fetching {name} needs the package datasets: pip install datasets") from error
    try:
        return datasets.load_dataset(name, config)
    except Exception as error:  # the network and the Hub raise many kinds
        raise ValueError(
            f"no file or folder is called {name}, and the Hub gave no data set of that name: {error}"
        ) from error


def _hub_table(where: str, dataset: Any) -> Table:
    columns = tuple(dataset.column_names)
    return Table(where=where, columns=columns, values=lambda column: list(dataset[column]))
