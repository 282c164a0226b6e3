"""Text rendering of a game: the query, and the response and score of each seat."""

from collections.abc import Mapping, Sequence

from cory_env.tokenizer import Tokenizer
from cory_env.types import Query, Response

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def game_text(
    query: Query,
    responses: Mapping[str, Sequence[int]],
    *,
    turn: str | None,
    tokenizer: Tokenizer,
    scores: Mapping[str, float],
    colour: bool = False,
) -> str:
    """Return one line for the query and one per seat; `>` marks the seat to act.

    `scores` by seat may be empty.
    """
    width = max(len(seat) for seat in responses)
    lines = [f"  {'query':<{width}}  {printable(query.text)}"]
    for seat, ids in responses.items():
        text = printable(Response.of(ids, tokenizer).text)
        line = f"{'>' if seat == turn else ' '} {seat:<{width}}  {text}"
        if seat in scores:
            line += f"  (score {scores[seat]:.3g})"
        style = BOLD if seat == turn else "" if ids else DIM
        lines.append(f"{style}{line}{PLAIN}" if colour and style else line)
    return "\n".join(lines)


def printable(text: str) -> str:
    """Escape the control characters of `text`, so that what a model writes cannot steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
