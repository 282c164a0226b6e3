"""Speed of the game's environments, compared with PettingZoo's tictactoe.

    python -m benchmarks.speed.env                 # a table
    python -m benchmarks.speed.env --check         # exit with 1 if a target is missed
    python -m benchmarks.speed.env --json FILE     # write the figures and their provenance

The AEC rows play the wrapped envs step by step, `last()` and `step()`, on actions drawn beforehand; steps of
terminated agents count, in tictactoe too. The VectorGame row counts tokens of responses; its time includes
all from `reset` with new queries to `payoffs`, with the scores. Seconds are processor time, rows take turns
and the best of each is reported, so that other load on the machine matters little and affects all alike.
"""

import argparse
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pettingzoo

from benchmarks.output import write_figures
from cory_env import VectorGame, env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

GAMES = 256
CAP = 16
VECTOR_STEPS, VECTOR_RATIO = 10e6, 100
"""Targets of VectorGame: token-steps per second, and times the AEC env's steps."""


def task(vocab_size: int) -> Echo:
    """The echo task over `vocab_size` ids; its letters are never used."""
    return Echo(CharTokenizer("".join(map(chr, range(1, vocab_size - 1)))), length=4)


def tictactoe() -> tuple[Any, Iterator[list[int]]]:
    """The env, and games for it: every order of the nine squares is legal up to the end of the game."""
    if importlib.util.find_spec("pygame") is None:
        sys.modules["pygame"] = types.ModuleType("pygame")  # imported for rendering, which is not used here
    rng = np.random.default_rng(0)
    games = [rng.permutation(9).tolist() for _ in range(1000)]
    return pettingzoo.make("aec", "classic/tictactoe-v3"), cycle(games)


def tokens(vocab_size: int) -> tuple[Any, Iterator[list[int]]]:
    """The token-level env, wrapped as users get it, and games of random tokens for it."""
    rng = np.random.default_rng(0)
    games = [rng.integers(vocab_size, size=2 * CAP).tolist() for _ in range(1000)]
    return env(task(vocab_size), max_response=CAP), cycle(games)


def cycle(games: list[list[int]]) -> Iterator[list[int]]:
    """Repeat the games forever."""
    while True:
        yield from games


def aec_rate(aec: Any, games: Iterator[list[int]], seconds: float) -> float:
    """Steps per second."""
    steps, start = 0, process_time()
    while process_time() - start < seconds:
        aec.reset()
        moves = iter(next(games))
        for _ in aec.agent_iter():
            _, _, terminated, truncated, _ = aec.last()
            aec.step(None if terminated or truncated else next(moves))
            steps += 1
    return steps / (process_time() - start)


def vector_rate(game: VectorGame, seconds: float) -> float:
    """Token-steps per second over batches of random responses of every length."""
    rng, tokenizer = np.random.default_rng(0), game.task.tokenizer
    queries = list(game.task.queries("train"))[: 2 * GAMES]
    ids_BT = rng.integers(tokenizer.vocab_size, size=(GAMES, CAP))
    ends_BT = np.isin(ids_BT, list(tokenizer.eos))
    lengths_B = np.where(ends_BT.any(axis=1), ends_BT.argmax(axis=1) + 1, CAP)
    steps, batch, start = 0, 0, process_time()
    while process_time() - start < seconds:
        game.reset(queries[:GAMES] if batch % 2 else queries[-GAMES:])
        for seat in game.seats:
            game.prompts(seat)
            game.respond(seat, ids_BT, lengths_B)
        game.payoffs()
        steps, batch = steps + len(game.seats) * int(lengths_B.sum()), batch + 1
    return steps / (process_time() - start)


def measure(rounds: int, seconds: float) -> dict[str, float]:
    """Best steps per second, by name."""
    board, small, large = tictactoe(), tokens(64), tokens(50_257)
    vector = VectorGame(task(64), max_response=CAP)
    rates: dict[str, Callable[[], float]] = {
        "tictactoe": lambda: aec_rate(*board, seconds),
        "aec_64": lambda: aec_rate(*small, seconds),
        "aec_50257": lambda: aec_rate(*large, seconds),
        "vector_64": lambda: vector_rate(vector, seconds),
    }
    best = dict.fromkeys(rates, 0.0)
    for _ in range(rounds):
        for name, rate in rates.items():
            best[name] = max(best[name], rate())
    return best


def shortfalls(rate: dict[str, float]) -> list[str]:
    """Missed targets, one line each."""
    needed = {
        "aec_64": ("aec_64", rate["tictactoe"]),
        "aec_50257": ("aec_50257", rate["tictactoe"]),
        "vector_64": ("vector_64", VECTOR_STEPS),
        "vector_64 over aec_64": ("vector_64", VECTOR_RATIO * rate["aec_64"]),
    }
    return [
        f"{target}: {rate[name]:,.0f} steps/s, the target is {least:,.0f}"
        for target, (name, least) in needed.items()
        if rate[name] < least
    ]


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of every row")
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    options = parser.parse_args()
    rate = measure(options.rounds, options.seconds)
    for name, steps in rate.items():
        print(f"{name:<10} {steps:>14,.0f} steps/s   {steps / rate['tictactoe']:8.1f} x tictactoe")
    print(f"VectorGame is {rate['vector_64'] / rate['aec_64']:,.0f} times as fast as the AEC env")
    if options.json:
        write_figures(options.json, {"steps_per_second": rate})
    missed = shortfalls(rate) if options.check else []
    for line in missed:
        print(f"too slow: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
