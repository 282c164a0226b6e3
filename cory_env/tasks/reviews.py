"""reviews: continue the opening of a movie review; a judge says how positive the whole reads."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cory_env.game import Query, Response
from cory_env.tasks.base import check_query, split_of
from cory_env.tokenizer import Tokenizer

Judge = Callable[[Sequence[str]], Sequence[float]]
"""Texts in, one score each out."""

LONGEST_TOKEN = 32
"""More characters than any token of an opening has, so that only the head of a review needs encoding."""


class Task:
    """Queries are the first few tokens of reviews; a score is the judge's, of query and response as one text.

    `data` is a JSON file of openings, in ids of `tokenizer`, {"train": [[ids], ...], "test": [[ids], ...]},
    or reviews: a parquet, CSV or JSONL file with a column `text` (split 80/20 by the sha256 of the text),
    or a folder of such files whose names start with `train` and `test`. A test opening that train has too is
    dropped and counted in `dropped`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        judge: Judge | None = None,
        data: str | Path | None = None,
        *,
        max_query: tuple[int, int] = (2, 7),
    ) -> None:
        """`max_query` is the (shortest, longest) opening in tokens; a review's hash draws its length."""
        if tokenizer is None or judge is None or data is None:
            missing = next(
                n for n, v in (("tokenizer", tokenizer), ("judge", judge), ("data", data)) if v is None
            )
            raise ValueError(
                f"the reviews task needs a {missing}; pass {missing}=... (the agents package has one)"
            )
        if not 1 <= max_query[0] <= max_query[1]:
            raise ValueError(f"max_query is {max_query}; give (shortest, longest) from 1 in order")
        self.tokenizer = tokenizer
        self.judge = judge
        self.max_query = max_query[1]
        path = Path(data)
        if path.suffix == ".json":
            ids = _openings(path)
        else:
            ids = {
                split: [self._opening(t, max_query) for t in texts] for split, texts in _reviews(path).items()
            }
        known = {tuple(opening) for opening in ids["train"]}
        fresh = [opening for opening in ids["test"] if tuple(opening) not in known]
        self.dropped = len(ids["test"]) - len(fresh)
        if not fresh:
            raise ValueError(
                f"{path}: every one of its {self.dropped} test openings is in train too; "
                "give more reviews, or longer openings with max_query"
            )
        self._queries = {"train": self._made(ids["train"], path), "test": self._made(fresh, path)}

    def _opening(self, text: str, lengths: tuple[int, int]) -> list[int]:
        """The first tokens of a review, as many as its hash draws from (shortest, longest)."""
        shortest, longest = lengths
        count = shortest + _hash(text) % (longest - shortest + 1)
        return self.tokenizer.encode(text[: longest * LONGEST_TOKEN])[:count]

    def _made(self, openings: Iterable[Sequence[int]], path: Path) -> list[Query]:
        queries = [Query(self.tokenizer.decode(ids), tuple(ids)) for ids in openings]
        for query in queries:
            try:
                check_query(query, max_query=self.max_query, vocab_size=self.tokenizer.vocab_size)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        return queries

    def queries(self, split: str) -> Sequence[Query]:
        """The openings of `train` or `test`, in the order of the file."""
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train openings, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[float]:
        """The judge's score of each query and its response read as one text, in one call."""
        # Decoded together: some tokenizers drop the space that begins a text; here it is inside a sentence.
        pairs = zip(queries, responses, strict=True)
        return self.judge([self.tokenizer.decode(query.ids + response.ids) for query, response in pairs])

    def template(self, seat: str) -> str:
        """The paper's wording; observers further on read each earlier sentence in its own quotes."""
        k = int(seat.rsplit("_", 1)[1])
        if k == 0:
            return "{query}"
        sentences = " ".join(f'"{{query}}{{response_{j}}}"' for j in range(k))
        this = "this sentence" if k == 1 else "these sentences"
        return f"I can make {this} {sentences} more positive: {{query}}"


def _hash(text: str) -> int:
    """A number that depends on the text alone, whatever the process."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _openings(path: Path) -> dict[str, list[list[int]]]:
    """Openings from a JSON file, refused unless both splits are non-empty lists of lists of ids."""
    wanted = 'it must be {"train": [[ids], ...], "test": [[ids], ...]}'
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as openings ({error}); {wanted}") from error
    for split in ("train", "test"):
        rows = found.get(split) if isinstance(found, dict) else None
        if not isinstance(rows, list) or not rows:
            raise ValueError(f"{path} has no openings under {split!r}; {wanted}")
        for row in rows:
            if not isinstance(row, list) or not all(type(token) is int for token in row):
                raise ValueError(f"{path} holds {str(row)[:60]!r} under {split!r}; {wanted}")
    return {split: found[split] for split in ("train", "test")}


def _reviews(path: Path) -> dict[str, list[str]]:
    """The texts of a file or folder by split, each once; a text that is in train is not in test."""
    if path.is_dir():
        files = {s: sorted(f for f in path.iterdir() if f.name.startswith(s)) for s in ("train", "test")}
        texts = {split: [text for file in found for text in _texts(file)] for split, found in files.items()}
    else:
        texts = {"train": [], "test": []}
        for text in _texts(path):
            texts["test" if _hash(text) % 5 == 0 else "train"].append(text)
    for split, found in texts.items():
        if not found:
            raise ValueError(
                f"{path} has no {split} reviews; a folder needs files named {split}*, a file more rows"
            )
    train = dict.fromkeys(texts["train"])
    return {
        "train": list(train),
        "test": [text for text in dict.fromkeys(texts["test"]) if text not in train],
    }


def _texts(path: Path) -> list[str]:
    """The column `text` of one file, line breaks as spaces, empty ones left out."""
    readers: dict[str, Callable[[Path], list[Any]]] = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl}
    if path.suffix not in readers:
        raise ValueError(f"{path} is not a {', '.join(readers)} file of reviews or a .json file of openings")
    try:
        rows = readers[path.suffix](path)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as reviews with a column `text` ({error!r})") from error
    cleaned = [str(row).replace("<br />", " ") for row in rows]
    return [text for text in cleaned if text.strip()]


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(f"reading {path} needs the package pyarrow: pip install pyarrow") from error
    column: list[Any] = pq.read_table(path, columns=["text"])["text"].to_pylist()
    return column


def _csv(path: Path) -> list[Any]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row["text"] for row in csv.DictReader(file)]


def _jsonl(path: Path) -> list[Any]:
    return [
        json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
