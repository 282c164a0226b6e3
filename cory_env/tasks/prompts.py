"""prompts: a data set of your own, with a column of prompts (texts or chats); other columns go to the judge.

A reward function is called as in TRL, `f(prompts, completions, **columns) -> list[float]`.
A row of a JSONL file, as text and as a chat:

    {"prompt": "Shorten: The cat sat on the mat.", "summary": "A cat sat."}
    {"prompt": [{"role": "user", "content": "Shorten: The cat sat on the mat."}], "summary": "A cat sat."}
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cory_env.data import splits, tables
from cory_env.grading.reward_functions import Cases, Judge, Prompt, prompt_text
from cory_env.tasks._judged import Judged
from cory_env.tasks.base import earlier
from cory_env.tokenizer import HFTokenizer, Message, Tokenizer, encode_prompt, for_chats
from cory_env.types import Query, Response, without_end

COLUMNS = ("prompt", "messages", "query", "question", "instruction", "text", "conversations")
"""Default names of the column of prompts; the first one present is used."""

RESERVED = ("prompts", "completions")
"""Names of columns that clash with parameters of reward functions."""

READ = ("role", "content", "name", "tool_calls", "reasoning_content")
"""What chat templates read of a message; others, such as its id, make no other prompt."""

TEXT = "{references}\n\n{query}"
"""Default of `observer`: earlier responses first, so that the observer's own continues the prompt."""

CHAT = "{query}\n\n{references}"
"""Default of `observer` for chats, where it becomes the last message of the user."""

REFERENCE = "Reference:\n{response}"

MARK = "\ue000"
"""Placeholder of the user's message when the text that the chat template puts behind it is rendered."""


class Task(Judged):
    """Queries are the prompts of a data set; the judge scores the responses.

    `data` is a parquet, CSV, JSON or JSONL file, a folder of such files whose names start with `train` and
    perhaps `test` and `validation`, or a name on the Hub. Without a test split a fifth of the prompts becomes
    it, and without validation a tenth of the train prompts, by the sha256 of their text. A prompt that occurs
    twice counts once; no two splits share one. `query.row` is the row of the data.
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
        """Read the prompts.

        Args:
            tokenizer: Splits the prompts; chats are rendered by its chat template.
            judge: Scores the responses.
            data: A file or folder of prompts, or a name on the Hub.
            config: Configuration of the data set on the Hub.
            column: Name of the column of prompts, texts or lists of {role, content}.
            chat: Whether texts are rendered by the chat template too, as messages of the user.
            max_query: Prompts of more tokens are left out.
            observer: Template of the observers, with {query} and {references}, the earlier responses.
            reference: Template of each earlier response, with {response}.
        """
        for name, value in (("tokenizer", tokenizer), ("judge", judge), ("data", data)):
            if value is None:
                raise ValueError(
                    f"the prompts task needs the argument {name}; pass {name}=... (--task.data, --judge)"
                )
        if max_query < 1:
            raise ValueError(f"max_query is {max_query}; give the most tokens of a prompt, from 1")
        assert tokenizer is not None
        assert judge is not None
        assert data is not None
        self.tokenizer, self.judge = tokenizer, judge
        rows, self.column, self.columns, left_out = _read(
            data, COLUMNS if column is None else (column,), config
        )
        self.chat = chat or any(not isinstance(row[self.column], str) for row in rows["train"])
        if self.chat:
            self.tokenizer = for_chats(tokenizer)
        self._suffix = _chat_suffix(tokenizer) if self.chat else ""
        self.reference, self.observer = reference, observer or (CHAT if self.chat else TEXT)
        _require(self.reference, "{response}")
        _require(self.observer, "{query}", "{references}")
        if self.chat and not self.observer.startswith("{query}"):
            raise ValueError(
                f"the observer's template {self.observer!r} puts words before a chat, which the chat "
                "template begins; begin with {query}"
            )
        every = {split: [self._query(row, data) for row in of_split] for split, of_split in rows.items()}
        self.keep(every, longest=max_query, where=data)
        self.left_out = [*left_out, *self.left_out]

    def _query(self, row: tables.Row, where: str | Path) -> Query:
        prompt: Prompt = row[self.column]
        if not self.chat:
            return Query(str(prompt), tuple(encode_prompt(self.tokenizer, str(prompt))), row)
        assert isinstance(self.tokenizer, HFTokenizer)
        text = self.tokenizer.chat(_messages(prompt))
        if not text.endswith(self._suffix):
            raise ValueError(
                f"{where}: the chat {str(prompt)[:120]} does not end in {self._suffix!r}, as the chat "
                "template ends a message of the user; end the chat with a message of the user"
            )
        head = text.removesuffix(self._suffix)
        return Query(prompt_text(prompt), tuple(self.tokenizer.encode(head)), row)

    def cases(self, queries: Sequence[Query], responses: Sequence[Response]) -> Cases:
        """Return what the judge is given; a query without a row has None in every column."""
        return Cases(
            prompts=[query.row.get(self.column, query.text) for query in queries],
            answers=[response.text for response in responses],
            texts=[self._text(*pair) for pair in zip(queries, responses, strict=True)],
            columns={name: [query.row.get(name) for query in queries] for name in self.columns},
            ids=[response.ids for response in responses],
        )

    def _text(self, query: Query, response: Response) -> str:
        """Return query and response as one text: decoded together, or line by line in a chat."""
        if not self.chat:
            ids = without_end(response.ids, self.tokenizer.eos)
            return self.tokenizer.decode([*query.ids, *ids])
        chat = prompt_text(_messages(query.row.get(self.column, query.text)))
        return f"{chat}\nassistant: {response.text}"

    def template(self, seat: str) -> str:
        """Return the bare prompt for the pioneer; observers read every earlier response as a reference."""
        suffix = self._suffix.replace("{", "{{").replace("}", "}}")
        if not earlier(seat):
            return f"{{query}}{suffix}"
        references = (self.reference.replace("{response}", f"{{response_{j}}}") for j in earlier(seat))
        return self.observer.replace("{references}", "\n\n".join(references)) + suffix


def _require(template: str, *placeholders: str) -> None:
    """Raise a ValueError if a template of the observers lacks a placeholder."""
    if missing := [name for name in placeholders if name not in template]:
        raise ValueError(f"the observer's template {template!r} lacks {missing[0]}; add it")


def _messages(prompt: Prompt) -> Sequence[Message]:
    """Return a prompt as a chat; a text becomes a message of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _chat_suffix(tokenizer: Tokenizer) -> str:
    """Return the text that the chat template puts between the user's message and the response."""
    if not isinstance(tokenizer, HFTokenizer):
        raise ValueError(
            "the prompts are chats and this tokenizer has no chat template; use a model that has a chat "
            "template, or give prompts as text"
        )
    return tokenizer.chat([{"role": "user", "content": MARK}]).partition(MARK)[2]


def _read(
    data: str | Path, choices: Sequence[str], config: str | None
) -> tuple[dict[str, list[tables.Row]], str, list[str], list[str]]:
    """The rows by split, the column of the prompts, the other columns, and lines on rows left out."""
    by_split = tables.read_tables(data, config=config)
    every = [table for of_split in by_split.values() for table in of_split]
    column = every[0].pick(choices)
    names = list(dict.fromkeys(name for table in every for name in table.columns))
    if taken := [name for name in names if name in RESERVED and name != column]:
        raise ValueError(f"{data} has a column {taken[0]!r}, a name that reward functions need; rename it")
    keyed = {
        split: [row for table in of_split for row in _keyed_rows(table, column, names)]
        for split, of_split in by_split.items()
    }
    kinds = {isinstance(row["row"][column], str) for rows in keyed.values() for row in rows}
    if len(kinds) > 1:
        raise ValueError(
            f"{data} mixes texts and chats in column {column!r}; give all prompts as one of them"
        )
    separated, left_out = splits.separate(keyed, "prompt", where=data)
    rows_by_split = {split: [row["row"] for row in rows] for split, rows in separated.items()}
    others = [name for name in names if name != column]
    return rows_by_split, column, others, left_out


def _keyed_rows(table: tables.Table, column: str, names: Sequence[str]) -> Iterator[tables.Row]:
    """Yield each row of `table` under `row`, and its prompt as a text under `prompt`."""
    values: dict[str, list[Any]] = {name: table.values(name) for name in names if name in table.columns}
    for number, value in enumerate(values[table.pick((column,))]):
        try:
            prompt = values[column][number] = _prompt(value)
        except ValueError as error:
            raise ValueError(
                f"row {number + 1} of {table.where} has no prompt in column {column!r} but "
                f"{str(value)[:60]!r}; {error}"
            ) from error
        yield {
            "prompt": _key(prompt),
            "row": {name: values[name][number] if name in values else None for name in names},
        }


def _prompt(value: Any) -> Prompt:
    """Return `value` if it is a text or a chat that ends with the user; contents in parts become texts."""
    if isinstance(value, str) and value.strip():
        return value
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        raise ValueError("give a text, or a list of messages with role and content, the last one the user's")
    if any("from" in message and "value" in message for message in value):
        raise ValueError("its messages have ShareGPT's from and value; give them as role and content")
    chat = [
        {key: held for key, held in message.items() if held is not None}  # Arrow gives all messages all keys
        | {"content": _content(message.get("content"))}
        for message in value
    ]
    if any(not isinstance(message.get("role"), str) for message in chat):
        raise ValueError("give each message a role and a content")
    if chat[-1]["role"] != "user":
        raise ValueError(
            f"its last message is of {chat[-1]['role']}; give messages, the last one the user's, and put the "
            "answer to it into a column of its own"
        )
    return chat


def _key(prompt: Prompt) -> str:
    """Return what makes a prompt another one: its text, or what chat templates read of its messages."""
    if isinstance(prompt, str):
        return prompt.strip()
    read = [{name: message[name] for name in READ if name in message} for message in prompt]
    return json.dumps([one | {"content": one["content"].strip()} for one in read], sort_keys=True)


def _content(content: Any) -> str:
    """Return the content of a message, parts of text joined."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the content of a message is {str(content)[:60]!r}; give text")
    return "".join(map(str, texts))
