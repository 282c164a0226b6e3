"""reviews: continue the opening of a movie review; a judge says how positive the whole reads."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cory_env import rows
from cory_env.game import Query, Response
from cory_env.judging import Cases, Judge, ask
from cory_env.tasks.base import check_query, split_of
from cory_env.tokenizer import Tokenizer

LONGEST_TOKEN = 32
"""More characters than any token of an opening has, so that only the head of a review needs encoding."""


COLUMNS = ("text", "review", "content", "sentence", "document")
"""Where the reviews stand if no column is named: the first of these that is there."""


class Task:
    """Queries are the first few tokens of reviews; a score is the judge's, of query and response as one text.

    `data` is a JSON file of openings, in ids of `tokenizer`, {"train": [[ids], ...], "test": [[ids], ...]},
    or reviews: a parquet, CSV or JSONL file (split 80/20 by the sha256 of the text), a folder of such files
    whose names start with `train` and `test`, or a name on the Hub, such as `stanfordnlp/imdb`. Test openings
    that train has too are left out: `dropped` counts them, `overlap` is their share of all test openings.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        judge: Judge | None = None,
        data: str | Path | None = None,
        *,
        max_query: tuple[int, int] = (2, 7),
        column: str | None = None,
        min_chars: int = 1,
    ) -> None:
        """`max_query` is the (shortest, longest) opening in tokens; a review's hash draws its length.

        The paper's is (2, 8), the released code's (2, 7) of reviews of more than 100 characters: `min_chars`
        101. `column` names the one that holds the reviews.
        """
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
        if Path(data).suffix == ".json":
            ids = _openings(Path(data))
        else:
            texts = _reviews(data, COLUMNS if column is None else (column,), min_chars)
            ids = {split: [self._opening(t, max_query) for t in found] for split, found in texts.items()}
        known = {tuple(opening) for opening in ids["train"]}
        fresh = [opening for opening in ids["test"] if tuple(opening) not in known]
        self.dropped = len(ids["test"]) - len(fresh)
        self.overlap = self.dropped / len(ids["test"])
        if not fresh:
            raise ValueError(
                f"{data}: every one of its {self.dropped} test openings is in train too; "
                "give more reviews, or longer openings with max_query"
            )
        self._queries = {"train": self._made(ids["train"], data), "test": self._made(fresh, data)}

    def _opening(self, text: str, lengths: tuple[int, int]) -> list[int]:
        """The first tokens of a review, as many as its hash draws from (shortest, longest)."""
        shortest, longest = lengths
        count = shortest + rows.text_hash(text) % (longest - shortest + 1)
        return self.tokenizer.encode(text[: longest * LONGEST_TOKEN])[:count]

    def _made(self, openings: Iterable[Sequence[int]], where: str | Path) -> list[Query]:
        queries = [Query(self.tokenizer.decode(ids), tuple(ids)) for ids in openings]
        for query in queries:
            try:
                check_query(query, max_query=self.max_query, vocab_size=self.tokenizer.vocab_size)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
        return queries

    @property
    def left_out(self) -> list[str]:
        """Test openings that train has too."""
        share = f"{self.dropped} of the test openings ({self.overlap:.1%}) are in train too and left out"
        return [share] if self.dropped else []

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
        cases = Cases(
            prompts=[query.text for query in queries],
            answers=[response.text for response in responses],
            texts=[self.tokenizer.decode(query.ids + response.ids) for query, response in pairs],
        )
        return ask(self.judge, cases)

    def template(self, seat: str) -> str:
        """The paper's wording; observers further on read each earlier sentence in its own quotes."""
        k = int(seat.rsplit("_", 1)[1])
        if k == 0:
            return "{query}"
        sentences = " ".join(f'"{{query}}{{response_{j}}}"' for j in range(k))
        this = "this sentence" if k == 1 else "these sentences"
        return f"I can make {this} {sentences} more positive: {{query}}"


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


def _reviews(data: str | Path, columns: Sequence[str], min_chars: int) -> dict[str, list[str]]:
    """The texts by split, each once, line breaks as spaces; blank and shorter ones left out."""
    kept = {
        split: [
            {"text": row["text"].replace("<br />", " ")}
            for row in found
            if row["text"].strip() and len(row["text"]) >= min_chars
        ]
        for split, found in rows.read_rows(data, {"text": columns}).items()
    }
    for split, found in kept.items():
        if not found:
            raise ValueError(f"{data}: the split {split!r} has no review of {min_chars} characters or more")
    return {
        split: [row["text"] for row in found]
        for split, found in rows.separate(kept, "text", where=data).items()
    }
