"""Reward functions that fail: in every way there is, by the response that is asked about, or all at once."""

import os
import time
from pathlib import Path


def judge(texts):
    """One score per text; never returns, dies, raises, scores NaN or not at all where the text says so by its
    hash."""
    kinds = [sum(text.encode()) % 40 for text in texts]
    fail(min(kinds))
    return [float("nan") if kind == 3 else 1.0 for kind in kinds if kind != 4]


def fail(kind: int) -> None:
    """What befalls a response of this kind."""
    if kind == 0:
        time.sleep(60)
    if kind == 1:
        os._exit(3)
    if kind == 2:
        raise ZeroDivisionError("a fault of mine")


def moody(texts):
    """How many letters e there are; fails while there is a file of the name in MOOD."""
    if Path(os.environ["MOOD"]).exists():
        raise ZeroDivisionError("not today [/INST]")
    return [float(text.count("e")) for text in texts]
