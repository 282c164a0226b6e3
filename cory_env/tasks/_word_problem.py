"""Base class of the word-problem tasks: a question in, one final number out. Exact match: 1 or 0."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from cory_env.data import splits, tables
from cory_env.grading.numeric_answers import extract_answer, is_correct
from cory_env.tasks.base import Pool, earlier
from cory_env.templates import Template
from cory_env.tokenizer import Tokenizer, encode_inside, for_chats
from cory_env.types import Query, Response

SYSTEM = (
    "Solve the problem step by step. End with a line that holds #### and the final number, such as: #### 3"
)


def paper_template(seat: str) -> str:
    """Return the template of the paper: observers read earlier responses as `Reference:` before `Answer:`."""
    references = "".join(f"Reference:{{response_{k}}}\n" for k in earlier(seat))
    return f"Question:{{query}}\n{references}Answer:"


class Problems(Pool):
    """A data set of word problems. A query holds the question only; the rest of a prompt is in the templates.

    `data` is a JSONL, JSON, CSV or parquet file, a folder of such files whose names start with `train` and
    perhaps `test` and `validation`, or a name on the Hub. Without a test split a fifth of the questions
    becomes it, and without validation a tenth of the train questions, by the sha256 of their text. No two
    splits share a question. A subclass is one data set.
    """

    correct_from = 1.0

    hub: ClassVar[str | None] = None
    """Name of the data set on the Hub, the default of `data`."""

    config: ClassVar[str | None] = None
    """Configuration of the data set on the Hub."""

    columns: ClassVar[Mapping[str, Sequence[str]]] = {"question": ("question",), "answer": ("answer",)}
    """Possible column names of each part of a problem; an `answer` may also be a list of one."""

    shot: ClassVar[str] = ""
    """Worked example at the start of every prompt that is no chat."""

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        data: str | Path | None = None,
        max_query: int = 256,
        chat: bool = False,
    ) -> None:
        """Read the problems.

        Args:
            tokenizer: Splits the questions.
            data: A file or folder of problems, or a name on the Hub; by default the Hub's.
            max_query: Questions of more tokens are left out.
            chat: Whether prompts are rendered by the tokenizer's chat template, without the worked example.
        """
        name = type(self).__module__.rpartition(".")[2]
        if tokenizer is None:
            raise ValueError(f"the {name} task needs a tokenizer; pass tokenizer=... (as `cory` does)")
        if max_query < 1:
            raise ValueError(f"max_query is {max_query}; give the most tokens of a question, from 1")
        where = self.hub if data is None else data
        if where is None:
            raise ValueError(f"the {name} task has no data set on the Hub; give a file with data=...")
        self.tokenizer = for_chats(tokenizer) if chat else tokenizer
        self.chat = chat
        problems = {
            split: [self.problem(row) for row in rows]
            for split, rows in tables.read_rows(
                where, self.columns, config=self.config, listed=("answer",)
            ).items()
        }
        rows, left_out = splits.separate(problems, "question", where=where)
        every = {split: [self._query(row, where) for row in of_split] for split, of_split in rows.items()}
        self.keep(every, longest=max_query, where=where)
        self.left_out = [*left_out, *self.left_out]

    def problem(self, row: tables.Row) -> tables.Row:
        """Return `question` and `answer` of a row of `columns`; a subclass may rewrite them."""
        return {**row, "question": row["question"].strip()}

    def _query(self, row: tables.Row, where: str | Path) -> Query:
        """Encode the question behind a space, which the templates leave out, so that words get usual ids."""
        if not row["question"] or extract_answer(row["answer"]) is None:
            raise ValueError(f"{where}: the row {str(row)[:120]} lacks a question or a number in its answer")
        return Query(row["question"], tuple(encode_inside(self.tokenizer, f" {row['question']}")), row)

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Score 1 for the gold final number, else 0."""
        pairs = zip(queries, responses, strict=True)
        return [float(is_correct(response.text, query.row["answer"])) for query, response in pairs]

    def template(self, seat: str) -> Template:
        """Return `paper_template` behind the worked example; in a chat, its parts as a user message."""
        if not self.chat:
            return f"{self.shot}{paper_template(seat)}"
        attempts = earlier(seat)
        references = "".join(f"\nReference:\n{{response_{k}}}" for k in attempts)
        return [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Question:{{query}}{references}"},
        ]
