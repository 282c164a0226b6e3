"""Judges that fail as users' functions do: each text names a fault. Quick to import for workers."""

import mmap
import os
import signal
import sys
import time
from pathlib import Path


def hang():
    while True:
        pass


def allocate():
    blocks = []
    while True:
        blocks.append(bytes(2**24))


def reserve():
    """Map more than any limit here, as the libraries of a GPU do, and write to none of it."""
    mmap.mmap(-1, 2**40, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


def flood():
    for stream in (sys.stdout, sys.stderr):
        stream.write("flood " * 10**6)


def fork():
    """Start three children that write their pids to the file FORKED and stay."""
    for _ in range(3):
        if not os.fork():
            with open(os.environ["FORKED"], "a") as file:
                file.write(f"{os.getpid()} ")
            time.sleep(60)
    hang()


def fail():
    raise KeyError("no such word")


FAULTS = {
    "hang": hang,
    "exit": lambda: os._exit(3),
    "quit": sys.exit,
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raise": fail,
    "allocate": allocate,
    "reserve": reserve,
    "flood": flood,
    "split": os.fork,
    "fork": fork,
}
BAD_SCORES = {
    "nan": float("nan"),
    "inf": -float("inf"),
    "none": None,
    "text": "2",
    "list": [1.0],
    "long": "x" * 10**7,
}


def faulty(texts):
    """The length of each text, unless it names a fault or a bad score above."""
    for text in texts:
        FAULTS.get(text, lambda: None)()
    return [BAD_SCORES.get(text, float(len(text))) for text in texts]


def short(texts):
    """One score for each text but `lost`."""
    return [1.0 for text in texts if text != "lost"]


def single(texts):
    """One score, whatever the number of texts."""
    return [1.0]


def endless(texts):
    return iter(lambda: 1.0, None)


def batch(texts):
    """The size of the batch as every score; fails on a batch with the text `alone`."""
    if "alone" in texts:
        raise ValueError("not that one")
    return [float(len(texts))] * len(texts)


def compare(prompts, completions, gold, weight=1.0, **columns):
    """TRL's convention: `weight` if the completion is the gold one, plus 100 for each other column."""
    equal = [float(completion == right) for completion, right in zip(completions, gold, strict=True)]
    return [weight * score + 100 * len(columns) for score in equal]


def strict(completions, gold):
    """The same without **columns and without prompts."""
    return [float(completion == right) for completion, right in zip(completions, gold, strict=True)]


def last_word(completions, **columns):
    """The length of the last message."""
    return [float(len(messages[-1]["content"])) for messages in completions]


def longer(completions, seat, responses):
    """Characters beyond the other seat's, ten times for the pioneer; the letters of a response alone."""
    others = [
        sum(map(len, game.values())) - len(text) for text, game in zip(completions, responses, strict=True)
    ]
    return [
        (10 if place == "pioneer_0" else 1) * (len(text) - other)
        for text, place, other in zip(completions, seat, others, strict=True)
    ]


def singly(completions, responses):
    """Characters of the whole game; fails on more than one response."""
    (game,) = responses
    return [float(sum(map(len, game.values())))]


def agree(responses):
    """Whether all responses of the game are equal."""
    return [float(len(set(game.values())) == 1) for game in responses]


agree.team_only = "there is nobody to agree with"


def unreliable(texts):
    """1.0 for each text; hangs, exits, raises, returns NaN or too few scores on one in eight."""
    kinds = [sum(text.encode()) % 40 for text in texts]
    first = min(kinds)
    if first == 0:
        time.sleep(60)
    if first == 1:
        os._exit(3)
    if first == 2:
        raise ZeroDivisionError("a fault of mine")
    return [float("nan") if kind == 3 else 1.0 for kind in kinds if kind != 4]


def fails_while_file_exists(texts):
    """How many letters e there are; fails while the file named in FAILS_WHILE exists."""
    if Path(os.environ["FAILS_WHILE"]).exists():
        raise ZeroDivisionError("not today [/INST]")
    return [float(text.count("e")) for text in texts]


class Judges:
    @staticmethod
    def ones(texts):
        return [1.0] * len(texts)


PI = 3.14
