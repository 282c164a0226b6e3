"""prompts: your own data. A column of prompts, texts or chats; the other columns go to the judge.

A reward function is called as elsewhere in the field, `f(prompts, completions, **columns) -> list[float]`.
A row of a JSONL file, as text and as a chat:

    {"prompt": "Shorten: The cat sat on the mat.", "summary": "A cat sat."}
    {"prompt": [{"role": "user", "content": "Shorten: The cat sat on the mat."}], "summary": "A cat sat."}
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cory_env import rows
from cory_env.game import Query, Response
from cory_env.judging import Cases, Judge, Prompt, ask
from cory_env.tasks.base import split_of, too_long
from cory_env.tokenizer import Message, Tokenizer, Wrapped

COLUMNS = ("prompt", "messages", "query", "question", "instruction", "text")
"""Where the prompts stand if no column is named: the first of these that is there."""

RESERVED = ("prompts", "completions")
"""Names that a reward function has other uses for."""

TEXT = "{references}\n\n{query}"
"""What an observer reads: earlier responses first, so that its own continues the prompt."""

CHAT = "{query}\n\n{references}"
"""The same in the user's last turn of a chat."""

REFERENCE = "Reference:\n{response}"

MARK = "\ue000"
"""Stands for what the user said while the chat template is asked for the words behind it."""


class Task:
    """Queries are the prompts of a data set; a score is the judge's.

    `data` is a parquet, CSV, JSON or JSONL file (split 80/20 by the sha256 of the prompt), a folder of such
    files whose names start with `train` and `test`, or a name on the Hub. A prompt that occurs twice counts
    once; train and test share none. `query.row` is the row of the data. `too_long` counts, by split, the
    prompts left out for their length.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        judge: Judge | None = None,
        *,
        data: str | Path | None = None,
        config: str | None = None,
        column: str | None = None,
        chat: bool = False,
        max_query: int = 512,
        observer: str | None = None,
        reference: str = REFERENCE,
    ) -> None:
        """`column` holds the prompts, texts or lists of {role, content}; `config` is the Hub's configuration.

        Chats are worded by the tokenizer's chat template, with `chat` texts too, as what the user says.
        Prompts of more than `max_query` tokens are left out. `observer` words the observers' prompts around
        {query} and {references}, the earlier responses, each in the words of `reference` around {response}.
        """
        for name, value in (("tokenizer", tokenizer), ("judge", judge), ("data", data)):
            if value is None:
                raise ValueError(f"the prompts task needs a {name}; pass {name}=... (--task.data, --judge)")
        if max_query < 1:
            raise ValueError(f"max_query is {max_query}; give the most tokens of a prompt, from 1")
        assert tokenizer is not None
        assert judge is not None
        assert data is not None
        self.tokenizer, self.judge = tokenizer, judge
        found, self.column, self.columns = _read(data, COLUMNS if column is None else (column,), config)
        self.chat = chat or any(not isinstance(row[self.column], str) for row in found["train"])
        self._after = _words_behind(tokenizer) if self.chat else ""
        self.reference, self.observer = reference, observer or (CHAT if self.chat else TEXT)
        _refuse_without(self.reference, "{response}")
        _refuse_without(self.observer, "{query}", "{references}")
        made = {split: [self._query(row, data) for row in told] for split, told in found.items()}
        self._queries = {s: [q for q in queries if len(q.ids) <= max_query] for s, queries in made.items()}
        self.longest = max_query
        self.too_long = {split: len(made[split]) - len(self._queries[split]) for split in made}
        for split, kept in self._queries.items():
            if not kept:
                raise ValueError(
                    f"{data}: every one of {len(made[split])} {split} prompts is longer than max_query, "
                    f"{max_query} tokens; raise it to at least {min(len(q.ids) for q in made[split])}"
                )
        self.max_query = max(len(query.ids) for kept in self._queries.values() for query in kept)

    def _query(self, row: rows.Row, where: str | Path) -> Query:
        prompt: Prompt = row[self.column]
        if not self.chat:
            return Query(str(prompt), tuple(self.tokenizer.encode(str(prompt))), row)
        assert isinstance(self.tokenizer, Wrapped)
        words = self.tokenizer.chat(_turns(prompt))
        if not words.endswith(self._after):
            raise ValueError(
                f"{where}: the chat {str(prompt)[:120]} does not end in {self._after!r}, as the chat "
                "template ends what a user says; end it with a turn of the user"
            )
        head = words.removesuffix(self._after)
        return Query(_shown(prompt), tuple(self.tokenizer.encode(head)), row)

    @property
    def left_out(self) -> list[str]:
        """Queries beyond `max_query`."""
        return too_long(self.too_long, self.longest)

    def queries(self, split: str) -> Sequence[Query]:
        """The prompts of `train` or `test`, in the order of the data."""
        return split_of(self._queries, split)

    def query(self, rng: np.random.Generator) -> Query:
        """One of the train prompts, each as likely as another."""
        train = self._queries["train"]
        return train[int(rng.integers(len(train)))]

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[float]:
        """The judge's scores of the whole batch; a query without a row has None in every column."""
        cases = Cases(
            prompts=[query.row.get(self.column, query.text) for query in queries],
            answers=[response.text for response in responses],
            texts=[self._text(query, said) for query, said in zip(queries, responses, strict=True)],
            columns={name: [query.row.get(name) for query in queries] for name in self.columns},
        )
        return ask(self.judge, cases)

    def _text(self, query: Query, response: Response) -> str:
        """Both as one text: decoded together, or line by line in a chat."""
        if not self.chat:
            return self.tokenizer.decode(query.ids + response.ids)
        said = _shown(_turns(query.row.get(self.column, query.text)))
        return f"{said}\nassistant: {response.text}"

    def template(self, seat: str) -> str:
        """The prompt as it is for the pioneer; observers read every earlier response as a reference."""
        k = int(seat.rsplit("_", 1)[1])
        after = self._after.replace("{", "{{").replace("}", "}}")
        if k == 0:
            return f"{{query}}{after}"
        references = (self.reference.replace("{response}", f"{{response_{j}}}") for j in range(k))
        return self.observer.replace("{references}", "\n\n".join(references)) + after


def _refuse_without(words: str, *placeholders: str) -> None:
    if missing := [name for name in placeholders if name not in words]:
        raise ValueError(f"the observer's wording {words!r} lacks {missing[0]}; add it")


def _turns(prompt: Prompt) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _shown(prompt: Prompt) -> str:
    """A prompt for people and judges of texts: a chat line by line."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def _words_behind(tokenizer: Tokenizer) -> str:
    """What the chat template writes between the user's last word and the first of the answer."""
    if not isinstance(tokenizer, Wrapped):
        raise ValueError(
            "the prompts are chats and this tokenizer has no words for one; use a model that has a chat "
            "template, or give prompts as text"
        )
    return tokenizer.chat([{"role": "user", "content": MARK}]).partition(MARK)[2]


def _read(
    data: str | Path, choices: Sequence[str], config: str | None
) -> tuple[dict[str, list[rows.Row]], str, list[str]]:
    """The rows by split, the column of the prompts, and the other columns; what is no prompt is refused."""
    tables = rows.read_tables(data, config=config)
    every = [table for found in tables.values() for table in found]
    column = every[0].pick(choices)
    names = list(dict.fromkeys(name for table in every for name in table.columns))
    if taken := [name for name in names if name in RESERVED and name != column]:
        raise ValueError(f"{data} has a column {taken[0]!r}, a name that reward functions need; rename it")
    keyed = {
        split: [row for table in found for row in _rows(table, column, names)]
        for split, found in tables.items()
    }
    kinds = {isinstance(row[column], str) for found in keyed.values() for row in _bare(found)}
    if len(kinds) > 1:
        raise ValueError(
            f"{data} mixes texts and chats in column {column!r}; give all prompts as one of them"
        )
    apart = rows.separate(keyed, "key", where=data)
    kept = {split: _bare(found) for split, found in apart.items()}
    return kept, column, [name for name in names if name != column]


def _bare(found: Sequence[rows.Row]) -> list[rows.Row]:
    return [keyed["row"] for keyed in found]


def _rows(table: rows.Table, column: str, names: Sequence[str]) -> Iterator[rows.Row]:
    """Rows with a text that stands for the prompt, by which they are told apart."""
    values: dict[str, list[Any]] = {name: table.values(name) for name in names if name in table.columns}
    for number, prompt in enumerate(values[table.pick((column,))]):
        if not _is_prompt(prompt):
            raise ValueError(
                f"row {number + 1} of {table.where} has no prompt in column {column!r} but "
                f"{str(prompt)[:60]!r}; give a text, or a list of messages with role and content, the last "
                "one the user's"
            )
        key = prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
        yield {"key": key, "row": {name: values[name][number] if name in values else None for name in names}}


def _is_prompt(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in value
        )
        and value[-1]["role"] == "user"
    )
