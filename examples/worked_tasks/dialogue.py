"""A dialogue: two seats answer a caller; the reward is for facts that are confirmed and a question.

    python -m examples.worked_tasks.dialogue
    python -m examples.worked_tasks.dialogue --model path/to/chat-model --data chats.jsonl

Your file needs the columns `prompt`, lists of {role, content}, and `facts`, what a good reply repeats. A
model of your own needs a chat template. The small model knows curt, forgetful and good replies.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cory
from cory import rewards
from examples.worked_tasks.small_model import Options, print_gain, settings, small_model

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
GREETINGS = ("Hello", "Good day", "Hi")
NAMES = ("Ann", "Ben", "Clare", "Dan", "Eve", "Frank", "Grace", "Hugh")
PLACES = ("Bath", "Derby", "Hull", "Leeds", "York")
TIMES = ("six", "seven", "eight", "nine", "noon")
COUNTS = ("two", "three", "four", "five")
QUESTIONS = ("What name shall I write?", "May I have your number?", "Shall I book it?")
CURT = ("Yes.", "No.", "Wait a moment.", "Call later.")


def call(drawn: random.Random) -> tuple[str, str, list[str]]:
    """What a caller says, how the matter is called, and its two facts."""
    greeting = f"{drawn.choice(GREETINGS)}, this is {drawn.choice(NAMES)} {drawn.choice(NAMES)}."
    if drawn.random() < 0.5:
        facts = [drawn.choice(COUNTS), drawn.choice(TIMES)]
        return f"{greeting} I need a table for {facts[0]} people at {facts[1]}.", "a table", facts
    facts = [drawn.choice(PLACES), drawn.choice(TIMES)]
    return f"{greeting} I need a taxi to {facts[0]}, leaving at {facts[1]}.", "a taxi", facts


def reply(drawn: random.Random, matter: str, facts: Sequence[str]) -> str:
    """One of the ways to reply: both facts and a question, one fact, or a curt word."""
    preposition = "for" if matter == "a table" else "to"
    whole = f"So {matter} {preposition} {facts[0]} at {facts[1]}. {drawn.choice(QUESTIONS)}"
    half = drawn.choice((f"So {matter} {preposition} {facts[0]}.", f"So {matter} at {facts[1]}."))
    return drawn.choice((whole, half, drawn.choice(CURT)))


def document(drawn: random.Random) -> str:
    """A document to pretrain on: a call and a reply, a third of them with an earlier reply."""
    said, matter, facts = call(drawn)
    before = f"\n\nReference:\n{reply(drawn, matter, facts)}" if drawn.random() < 1 / 3 else ""
    return f"user: {said}{before}\nassistant: {reply(drawn, matter, facts)}"


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Generated rows: chats of one message, and the facts that a reply should repeat."""
    drawn = random.Random(seed)
    made = [call(drawn) for _ in range(count)]
    return [{"prompt": [{"role": "user", "content": said}], "facts": facts} for said, _, facts in made]


def confirms(
    prompts: Sequence[Any], completions: Sequence[Any], facts: Sequence[Sequence[str]], **columns: Any
) -> list[float]:
    """The share of the facts that a reply repeats; completions are chats of one message."""
    words = [re.findall(r"\w+", completion[-1]["content"].lower()) for completion in completions]
    return [sum(fact.lower() in said for fact in of) / len(of) for said, of in zip(words, facts, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Dialogue(Options):
    """Replies to callers by two seats."""

    run: Path = Path("runs/dialogue")


def main(options: Options) -> cory.Run:
    """Pretrain the model, train both seats, print the gain."""
    run = cory.train(
        model=small_model(options, document, chat_template=TEMPLATE),
        dataset=options.data or rows(2000),
        reward=[confirms, rewards.converses],
        max_response=(24, 24),
        **settings(options),
    )
    print_gain(run)
    return run


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Dialogue, description=__doc__))
