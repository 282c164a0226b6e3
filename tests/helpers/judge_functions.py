"""Rewards that do to their process what users' functions have done to theirs. Quick to import."""

import os
import signal
import sys
import time


def hang():
    while True:
        pass


def allocate():
    kept = []
    while True:
        kept.append(bytes(2**24))


def flood():
    for stream in (sys.stdout, sys.stderr):
        stream.write("flood " * 10**6)


def fork(children, megabytes=0):
    """Each writes its pid beside this module's tests (FORKED), and stays."""
    for _ in range(children):
        if not os.fork():
            with open(os.environ["FORKED"], "a") as file:
                file.write(f"{os.getpid()} ")
            held = b"x" * (megabytes * 2**20)
            time.sleep(60)
            del held
    hang()


def fail():
    raise KeyError("no such word")


DEEDS = {
    "hang": hang,
    "exit": lambda: os._exit(3),
    "quit": sys.exit,
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raise": fail,
    "allocate": allocate,
    "flood": flood,
    "split": os.fork,
    "fork": lambda: fork(3),
    "bomb": lambda: fork(12),
    "heavy": lambda: fork(3, megabytes=80),
}
INSTEAD = {
    "nan": float("nan"),
    "inf": -float("inf"),
    "none": None,
    "text": "2",
    "list": [1.0],
    "long": "x" * 10**7,
}


def troubled(texts):
    """The length of each text, where none of them names a deed above."""
    for text in texts:
        DEEDS.get(text, lambda: None)()
    return [INSTEAD.get(text, float(len(text))) for text in texts]


def short(texts):
    """Loses what reads lost."""
    return [1.0 for text in texts if text != "lost"]


def endless(texts):
    return iter(lambda: 1.0, None)


def batch(texts):
    """How many were asked about at once; refuses what reads alone."""
    if "alone" in texts:
        raise ValueError("not that one")
    return [float(len(texts))] * len(texts)


def compare(prompts, completions, gold, weight=1.0, **columns):
    """The field's convention: weight where the completion is the gold one, 100 for each other column."""
    same = [float(said == right) for said, right in zip(completions, gold, strict=True)]
    return [weight * score + 100 * len(columns) for score in same]


def strict(completions, gold):
    """The same without **columns and without prompts."""
    return [float(said == right) for said, right in zip(completions, gold, strict=True)]


def last_word(completions, **columns):
    """Of messages: how long the last one is."""
    return [float(len(messages[-1]["content"])) for messages in completions]


class Judges:
    @staticmethod
    def ones(texts):
        return [1.0] * len(texts)


PI = 3.14
