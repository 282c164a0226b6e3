"""reviews: continue the opening of a movie review; a judge scores how positive the whole reads."""

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cory_env.data import splits, tables
from cory_env.grading.reward_functions import Cases, Judge
from cory_env.tasks._judged import Judged
from cory_env.tasks.base import check_query, earlier
from cory_env.tokenizer import Tokenizer
from cory_env.types import Query, Response, without_end

LONGEST_TOKEN = 32
"""Upper bound of the characters in a token, so that only the head of a review needs encoding."""

COLUMNS = ("text", "review", "content", "sentence", "document")
"""Default names of the column of reviews; the first one present is used."""


class Opening(NamedTuple):
    """The first tokens of a review."""

    source: str
    """The review, or the opening where the data hold no more; its hash chooses the split."""

    ids: tuple[int, ...]


class Task(Judged):
    """Queries are the first few tokens of reviews; the judge scores query and response as one text.

    `data` is a JSON file of openings, {"train": [text, ...], "test": [text, ...]} and perhaps "validation",
    or reviews: a parquet, CSV or JSONL file, a folder of such files whose names start with `train` and
    perhaps `test` and `validation`, or a name on the Hub, such as `stanfordnlp/imdb`. Without a test split a
    fifth of the reviews becomes it, and without validation a tenth of train, by the sha256 of the text or, in
    a file of openings, of the ids. No two splits share an opening: validation leaves out
    those of the others, test those of train. By split, `dropped` counts them and `overlap` is their share.
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
        """Read the openings, or cut them from reviews.

        Args:
            tokenizer: Splits the reviews.
            judge: Scores query and response as one text.
            data: A file of openings, a file or folder of reviews, or a name on the Hub.
            max_query: The shortest and the longest opening in tokens that is cut from a review; a hash of
                the review chooses its length. The paper has 2 and 8, the released code 2 and 7.
            column: Name of the column of reviews.
            min_chars: Shorter reviews are left out; the released code has 101.
        """
        if tokenizer is None or judge is None or data is None:
            missing = next(
                n for n, v in (("tokenizer", tokenizer), ("judge", judge), ("data", data)) if v is None
            )
            raise ValueError(
                f"the reviews task needs the argument {missing}; pass {missing}=... (as `cory` does)"
            )
        if not 1 <= max_query[0] <= max_query[1]:
            raise ValueError(f"max_query is {max_query}; give (shortest, longest) from 1 in order")
        self.tokenizer = tokenizer
        self.judge = judge
        if Path(data).suffix == ".json":
            _check_unused(data, max_query=tuple(max_query), column=column, min_chars=min_chars)
            left_out: list[str] = []
            given = {
                split: [Opening(text, tuple(self.tokenizer.encode(text))) for text in texts]
                for split, texts in _openings(Path(data)).items()
            }
        else:
            texts, left_out = _reviews(data, COLUMNS if column is None else (column,), min_chars)
            given = {
                split: [self._opening(t, max_query) for t in reviews] for split, reviews in texts.items()
            }
        self.max_query = max(len(opening.ids) for openings in given.values() for opening in openings)
        divided, self.dropped = _divide(given)
        self.overlap = {
            split: dropped / max(1, dropped + len(divided[split])) for split, dropped in self.dropped.items()
        }
        if not divided["test"]:
            raise ValueError(
                f"{data}: every one of its {self.dropped['test']} test openings is in train too; "
                "give more reviews, or longer openings with max_query"
            )
        self._queries = {split: self._make_queries(openings, data) for split, openings in divided.items()}
        either = " or validation" if self._queries["validation"] else ""
        others = {"validation": "train or test", "test": f"train{either}"}
        self.left_out = left_out + [
            f"{dropped} of the {split} openings ({self.overlap[split]:.1%}) are in {others[split]} too "
            "and left out"
            for split, dropped in self.dropped.items()
            if dropped
        ]

    def _opening(self, text: str, lengths: tuple[int, int]) -> Opening:
        """Return the first tokens of a review, their number chosen by its hash out of (shortest, longest)."""
        shortest, longest = lengths
        # A hash of its own: the split is chosen by that of the text, and length must not tell it.
        count = shortest + splits.text_hash(f"length {text}") % (longest - shortest + 1)
        return Opening(text, tuple(self.tokenizer.encode(text[: longest * LONGEST_TOKEN])[:count]))

    def _make_queries(self, openings: Iterable[Opening], where: str | Path) -> list[Query]:
        queries = [Query(self.tokenizer.decode(opening.ids), opening.ids) for opening in openings]
        for query in queries:
            try:
                check_query(query, max_query=self.max_query, vocab_size=self.tokenizer.vocab_size)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
        return queries

    def cases(self, queries: Sequence[Query], responses: Sequence[Response]) -> Cases:
        """Return what the judge is given."""
        # Decoded together: some tokenizers drop the space that begins a text; here it is inside a sentence.
        pairs = zip(queries, responses, strict=True)
        return Cases(
            prompts=[query.text for query in queries],
            answers=[response.text for response in responses],
            texts=[
                self.tokenizer.decode([*query.ids, *without_end(response.ids, self.tokenizer.eos)])
                for query, response in pairs
            ],
            ids=[response.ids for response in responses],
        )

    def template(self, seat: str) -> str:
        """Return the template of the paper; later observers read every earlier sentence in its own quotes."""
        k = len(earlier(seat))
        if k == 0:
            return "{query}"
        sentences = " ".join(f'"{{query}}{{response_{j}}}"' for j in range(k))
        this = "this sentence" if k == 1 else "these sentences"
        return f"I can make {this} {sentences} more positive: {{query}}"


def _divide(given: Mapping[str, Sequence[Opening]]) -> tuple[dict[str, list[Opening]], dict[str, int]]:
    """Return train, validation and test, which share no opening, and how many were left out for that."""
    train, test = list(given["train"]), _without(given["test"], given["train"])
    validation = list(given.get("validation", ()))
    own = _without(validation, [*train, *test])
    if not own:
        train, validation = splits.take_validation(given["train"], lambda opening: opening.source)
        own = _without(validation, train)
    if not own:  # short openings of few reviews: each begins a train review too
        train, own = splits.take_validation(given["train"], lambda opening: " ".join(map(str, opening.ids)))
        validation = own
    dropped = {"validation": len(validation) - len(own), "test": len(given["test"]) - len(test)}
    return {"train": train, "validation": own, "test": test}, dropped


def _without(openings: Sequence[Opening], others: Sequence[Opening]) -> list[Opening]:
    """Return the openings whose ids are not among those of the others."""
    known = {opening.ids for opening in others}
    return [opening for opening in openings if opening.ids not in known]


def _check_unused(data: str | Path, **options: Any) -> None:
    """Raise ValueError for an option about whole reviews that is not its default."""
    parameters = inspect.signature(Task).parameters
    for name, value in options.items():
        if value != (default := parameters[name].default):
            raise ValueError(
                f"{data} holds openings as they are, and {name} {value} is about those cut from reviews; set "
                f"it to {default}, which a preset may have changed, or give reviews"
            )


def _openings(path: Path) -> dict[str, list[str]]:
    """Read openings from a JSON file: non-empty lists of texts, of which validation may be missing."""
    wanted = 'it must be {"train": [text, ...], "test": [text, ...]}'
    try:
        openings = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as openings ({error}); {wanted}") from error
    optional = {"validation"} if isinstance(openings, dict) and "validation" in openings else set()
    by_split: dict[str, list[str]] = {}
    for split in ("train", *optional, "test"):
        rows = openings.get(split) if isinstance(openings, dict) else None
        if not isinstance(rows, list) or not rows:
            raise ValueError(f"{path} has no openings under {split!r}; {wanted}")
        for row in rows:
            if not isinstance(row, str) or not row:
                raise ValueError(f"{path} holds {str(row)[:60]!r} under {split!r}; {wanted}")
        by_split[split] = rows
    return by_split


def _reviews(
    data: str | Path, columns: Sequence[str], min_chars: int
) -> tuple[dict[str, list[str]], list[str]]:
    """Read the texts by split, each once, with line breaks as spaces, and lines on those left out.

    Blank and shorter ones are left out too.
    """
    reviews = {
        split: [
            {"text": row["text"].replace("<br />", " ")}
            for row in rows
            if row["text"].strip() and len(row["text"]) >= min_chars
        ]
        for split, rows in tables.read_rows(data, {"text": columns}).items()
    }
    for split, rows in reviews.items():
        if not rows and split != "validation":
            raise ValueError(f"{data}: the split {split!r} has no review of {min_chars} characters or more")
    separated, left_out = splits.separate(reviews, "text", where=data)
    return {split: [row["text"] for row in rows] for split, rows in separated.items()}, left_out
