"""Summaries: two seats shorten match reports; the reward is the overlap with a summary written by hand.

    python -m examples.worked_tasks.summaries
    python -m examples.worked_tasks.summaries --model path/to/model --data articles.jsonl

Your file needs the columns `prompt` and `summary`. The generated reports hide one result among sentences
that do not matter. The small model states the result, copies the first sentence or rambles on, each as often;
`cory.rewards.overlap` (ROUGE-L) teaches it which of them is a summary.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import cory
from cory import rewards
from examples.worked_tasks.small_model import Options, print_gain, settings, small_model

TEAMS = ("Leeds", "York", "Bath", "Derby", "Hull", "Ely", "Wells", "Ripon")
DAYS = ("Monday", "Friday", "Saturday", "Sunday")
ASIDES = (
    "It rained all day.",
    "The match began late.",
    "The referee was from Wales.",
    "Tickets were sold out.",
    "The stands were half empty.",
    "Both teams wore red.",
)


def report(drawn: random.Random) -> tuple[str, str]:
    """A report and its summary."""
    winner, loser = drawn.sample(TEAMS, 2)
    high = drawn.randint(1, 5)
    low = drawn.randrange(high)
    summary = f"{winner} beat {loser} {high}-{low}."
    result = drawn.choice(
        (
            f"On {drawn.choice(DAYS)} {winner} beat {loser} {high}-{low} away.",
            f"{winner} met {loser} on {drawn.choice(DAYS)} and won {high}-{low}.",
        )
    )
    sentences = [*drawn.sample(ASIDES, 3), result]
    drawn.shuffle(sentences)
    return " ".join(sentences), summary


def attempt(drawn: random.Random, text: str, summary: str) -> str:
    """One of the ways to respond: the result, the first sentence, or the result and more."""
    way = drawn.randrange(3)
    first = text.split(". ")[0] + "."
    return (summary, first, f"{summary} {drawn.choice(ASIDES)} {drawn.choice(ASIDES)}")[way]


def document(drawn: random.Random) -> str:
    """A document to pretrain on: a report and a response, a third of them with an earlier response."""
    text, summary = report(drawn)
    before = f"Reference:\n{attempt(drawn, text, summary)}\n\n" if drawn.random() < 1 / 3 else ""
    return f"{before}{text}\nIn short: {attempt(drawn, text, summary)}"


def rows(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Generated rows: prompts that end where the summary begins, and the summaries."""
    drawn = random.Random(seed)
    made = [report(drawn) for _ in range(count)]
    return [{"prompt": f"{text}\nIn short:", "summary": summary} for text, summary in made]


@dataclass(frozen=True, kw_only=True)
class Summaries(Options):
    """Summaries of match reports by two seats."""

    run: Path = Path("runs/summaries")


def main(options: Options) -> cory.Run:
    """Pretrain the model, train both seats, print the gain."""
    run = cory.train(
        model=small_model(options, document),
        dataset=options.data or rows(2000),
        reward=rewards.overlap,
        max_response=(24, 24),
        **settings(options),
    )
    print_gain(run)
    return run


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Summaries, description=__doc__))
