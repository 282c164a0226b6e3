"""A reward function that fails in every way there is, by the response it is asked about."""

import os
import time


def judge(texts):
    """One score per text; never returns, dies, raises or scores NaN where the text says so by its hash."""
    kinds = [sum(text.encode()) % 40 for text in texts]
    if len(texts) == 1:
        fail(kinds[0])
    elif any(kind < 4 for kind in kinds):
        fail(min(kinds))
    return [float("nan") if kind == 3 else 1.0 for kind in kinds]


def fail(kind: int) -> None:
    """What befalls a response of this kind."""
    if kind == 0:
        time.sleep(60)
    if kind == 1:
        os._exit(3)
    if kind == 2:
        raise ZeroDivisionError("a fault of mine")
