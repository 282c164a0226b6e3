"""gsm8k: school word problems in several steps, one final number each. Exact match: 1 or 0.

On the Hub `openai/gsm8k` (configuration `main`, MIT licence): 7,473 problems in train, 1,319 in test. A row:

    question  Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting. How
              much did she earn?
    answer    Weng earns 12/60 = $<<12/60=0.2>>0.2 per minute.
              Working 50 minutes, she earned 0.2 x 50 = $<<0.2*50=10>>10.
              #### 10
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cory_env import rows
from cory_env.answers import extract_answer, is_correct, is_marked
from cory_env.game import Query, Response
from cory_env.tasks.base import split_of
from cory_env.templates import read_template
from cory_env.tokenizer import Tokenizer, encode_inside

__all__ = ["Task", "extract_answer", "is_correct"]

HUB = "openai/gsm8k"
CONFIG = "main"

SHOT = """\
Question: A baker fills 4 trays with 12 rolls each. She sells 30 rolls and packs the rest in bags of 6. \
How many bags does she need?
Answer: The baker fills 4 * 12 = 48 rolls in all.
After the sale 48 - 30 = 18 rolls are left.
She needs 18 / 6 = 3 bags.
#### 3

"""
"""The one worked example of the prompt; ours, and in no data set."""

SYSTEM = (
    "Solve the problem step by step. End with a line that holds #### and the final number, such as: #### 3"
)


class Task:
    """Queries are the questions alone; the worked example belongs to the prompts, `#### n` ends an answer.

    `data` is a JSONL, CSV or parquet file with the columns `question` and `answer` (split 80/20 by the sha256
    of the question), a folder of such files whose names start with `train` and `test`, or a name on the Hub.
    Train and test share no question. `too_long` counts, by split, the questions left out for their length.
    """

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
        """`data` is `openai/gsm8k` unless given; questions of more than `max_query` tokens are left out.

        `chat` words the prompts by the tokenizer's chat template, without the example. A response that has
        its number behind `####` scores `format_reward` more, and each of its tokens costs `length_penalty`.
        """
        if tokenizer is None:
            raise ValueError(
                "the gsm8k task needs a tokenizer; pass tokenizer=... (the agents package has one)"
            )
        if max_query < 1:
            raise ValueError(f"max_query is {max_query}; give the most tokens of a question, from 1")
        for name, value in (("format_reward", format_reward), ("length_penalty", length_penalty)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; give a finite number from 0 (0 turns it off)")
        self.tokenizer = tokenizer
        self.chat = chat
        self.format_reward = format_reward
        self.length_penalty = length_penalty
        where = HUB if data is None else data
        columns = {"question": ("question",), "answer": ("answer",)}
        found = rows.separate(rows.read_rows(where, columns, config=CONFIG), "question", where=where)
        made = {split: [self._query(row, where) for row in questions] for split, questions in found.items()}
        self._queries = {s: [q for q in queries if len(q.ids) <= max_query] for s, queries in made.items()}
        self.too_long = {split: len(made[split]) - len(self._queries[split]) for split in made}
        for split, kept in self._queries.items():
            if not kept:
                raise ValueError(
                    f"{where}: every one of {len(made[split])} {split} questions is longer than max_query, "
                    f"{max_query} tokens; raise it to at least {min(len(q.ids) for q in made[split])}"
                )
        self.max_query = max(len(query.ids) for kept in self._queries.values() for query in kept)

    def _query(self, row: rows.Row, where: str | Path) -> Query:
        """The question behind a space, which the templates leave to it: so words keep their usual ids."""
        if not row["question"].strip() or extract_answer(row["answer"]) is None:
            raise ValueError(f"{where}: the row {str(row)[:120]} lacks a question or a number in its answer")
        return Query(
            row["question"], tuple(encode_inside(self.tokenizer, f" {row['question'].strip()}")), row
        )

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
        """The paper's wording, one-shot: observers read earlier answers as `Reference:` before `Answer:`."""
        attempts = range(int(seat.rsplit("_", 1)[1]))
        if not self.chat:
            references = "".join(f"Reference:{{response_{k}}}\n" for k in attempts)
            return f"{SHOT}Question:{{query}}\n{references}Answer:"
        references = "".join(f"\nReference:\n{{response_{k}}}" for k in attempts)
        turns = (
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Question:{{query}}{references}"},
        )
        return "".join(
            literal.replace("{", "{{").replace("}", "}}") + (f"{{{name}}}" if name else "")
            for literal, name in read_template(seat, turns, self.tokenizer)
        )
