"""The table as people see it: the query, who speaks, what was said and what it was worth."""

from collections.abc import Mapping

from cory_env.game import Game
from cory_env.tokenizer import Tokenizer

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def table(game: Game, tokenizer: Tokenizer, *, scores: Mapping[str, float], colour: bool = False) -> str:
    """One line for the query and one per seat; `>` marks the seat whose turn it is. `scores` may be empty."""
    turn = game.turn
    width = max(len(seat) for seat in game.seats)
    lines = [f"  {'query':<{width}}  {printable(game.query.text)}"]
    for seat, said in game.responses.items():
        line = f"{'>' if seat == turn else ' '} {seat:<{width}}  {printable(tokenizer.decode(said))}"
        if seat in scores:
            line += f"  (score {scores[seat]:.3g})"
        style = BOLD if seat == turn else "" if said else DIM
        lines.append(f"{style}{line}{PLAIN}" if colour and style else line)
    return "\n".join(lines)


def printable(text: str) -> str:
    """`text` with control characters spelled out: what a model wrote must not steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
