"""What the tasks of word problems share: a question in, one final number out. Exact match: 1 or 0."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from cory_env import rows
from cory_env.answers import extract_answer, is_correct, is_marked
from cory_env.game import Query, Response
from cory_env.tasks.base import split_of, too_long
from cory_env.templates import read_template
from cory_env.tokenizer import Tokenizer, encode_inside

SYSTEM = (
    "Solve the problem step by step. End with a line that holds #### and the final number, such as: #### 3"
)


def worded(seat: str) -> str:
    """The paper's wording: observers read earlier answers as `Reference:` before `Answer:`."""
    references = "".join(f"Reference:{{response_{k}}}\n" for k in range(int(seat.rsplit("_", 1)[1])))
    return f"Question:{{query}}\n{references}Answer:"


class Problems:
    """Queries are the questions alone; whatever else stands in a prompt belongs to the templates.

    `data` is a JSONL, JSON, CSV or parquet file (split 80/20 by the sha256 of the question), a folder of such
    files whose names start with `train` and `test`, or a name on the Hub. Train and test share no question.
    `too_long` counts, by split, the questions left out for their length. A subclass is one data set.
    """

    hub: ClassVar[str | None] = None
    """Its name on the Hub, which is asked where no data are given."""

    config: ClassVar[str | None] = None
    """Which of the configurations there."""

    columns: ClassVar[Mapping[str, Sequence[str]]] = {"question": ("question",), "answer": ("answer",)}
    """Where each part of a problem may stand; `answer` also as a list of one."""

    shot: ClassVar[str] = ""
    """A worked example in front of every prompt that is no chat."""

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        data: str | Path | None = None,
        max_query: int = 256,
        chat: bool = False,
        format_reward: float = 0.0,
        length_penalty: float = 0.0,
    ) -> None:
        """`data` is asked of the Hub unless given; questions of more than `max_query` tokens are left out.

        `chat` words the prompts by the tokenizer's chat template, without the example. A response that has
        its number behind `####` scores `format_reward` more, and each of its tokens costs `length_penalty`.
        """
        name = type(self).__module__.rpartition(".")[2]
        if tokenizer is None:
            raise ValueError(
                f"the {name} task needs a tokenizer; pass tokenizer=... (the agents package has one)"
            )
        if max_query < 1:
            raise ValueError(f"max_query is {max_query}; give the most tokens of a question, from 1")
        for option, value in (("format_reward", format_reward), ("length_penalty", length_penalty)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{option} is {value}; give a finite number from 0 (0 turns it off)")
        where = self.hub if data is None else data
        if where is None:
            raise ValueError(f"the {name} task knows no such set on the Hub; give a file with data=...")
        self.tokenizer = tokenizer
        self.chat = chat
        self.format_reward = format_reward
        self.length_penalty = length_penalty
        found = rows.separate(self._problems(where), "question", where=where)
        made = {split: [self._query(row, where) for row in problems] for split, problems in found.items()}
        self._queries = {s: [q for q in queries if len(q.ids) <= max_query] for s, queries in made.items()}
        self.longest = max_query
        self.too_long = {split: len(made[split]) - len(self._queries[split]) for split in made}
        for split, kept in self._queries.items():
            if not kept:
                raise ValueError(
                    f"{where}: every one of {len(made[split])} {split} questions is longer than max_query, "
                    f"{max_query} tokens; raise it to at least {min(len(q.ids) for q in made[split])}"
                )
        self.max_query = max(len(query.ids) for kept in self._queries.values() for query in kept)

    def problem(self, row: rows.Row) -> rows.Row:
        """`question` and `answer` of a problem; as they stand in the data, unless a subclass says."""
        return row

    def _problems(self, where: str | Path) -> dict[str, list[rows.Row]]:
        found = rows.read_rows(where, self.columns, config=self.config, listed=("answer",))
        return {split: [self.problem(row) for row in problems] for split, problems in found.items()}

    def _query(self, row: rows.Row, where: str | Path) -> Query:
        """The question behind a space, which the templates leave to it: so words keep their usual ids."""
        if not row["question"].strip() or extract_answer(row["answer"]) is None:
            raise ValueError(f"{where}: the row {str(row)[:120]} lacks a question or a number in its answer")
        return Query(
            row["question"], tuple(encode_inside(self.tokenizer, f" {row['question'].strip()}")), row
        )

    @property
    def left_out(self) -> list[str]:
        """Queries beyond `max_query`."""
        return too_long(self.too_long, self.longest)

    def queries(self, split: str) -> Sequence[Query]:
        """The questions of `train` or `test`, in the order of the data; `row["answer"]` is the solution."""
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train questions, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """1 where the final number is the gold one, 0 elsewhere; then what the two options add and take."""
        return [
            is_correct(response.text, query.row["answer"])
            + self.format_reward * is_marked(response.text)
            - self.length_penalty * len(response.ids)
            for query, response in zip(queries, responses, strict=True)
        ]

    def template(self, seat: str) -> str:
        """`worded` behind the worked example; in a chat, its words as what the user says."""
        if not self.chat:
            return f"{self.shot}{worded(seat)}"
        attempts = range(int(seat.rsplit("_", 1)[1]))
        references = "".join(f"\nReference:\n{{response_{k}}}" for k in attempts)
        turns = (
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Question:{{query}}{references}"},
        )
        return "".join(
            literal.replace("{", "{{").replace("}", "}}") + (f"{{{name}}}" if name else "")
            for literal, name in read_template(seat, turns, self.tokenizer)
        )
