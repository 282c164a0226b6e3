"""Players that do not learn, objects with `respond(texts) -> texts`: scripts, and a model behind an API.

    cory train --preset pocket-arithmetic --players.pioneer_0 examples/players.py:right

trains an observer behind a pioneer whose sums are always right; `wrong` is off by one, `remote` asks a
server.
"""

import re
from collections.abc import Callable, Sequence


class Sums:
    """Responds to the sum of a prompt with a number that depends on the right one."""

    def __init__(self, number: Callable[[int], int]) -> None:
        self.number = number

    def respond(self, texts: Sequence[str]) -> list[str]:
        """The response to each prompt, such as `3+4=`, or `Question: 3 - 4` with lines behind it."""
        sums = [text.rpartition("Question:")[2].splitlines()[0].split(";")[-1] for text in texts]
        numbers = [[int(sign + digits) for sign, digits in re.findall(r"(-?) ?(\d+)", one)] for one in sums]
        return [str(self.number(sum(one))) for one in numbers]


class Remote:
    """Asks a model behind an API, all prompts of a batch in one request."""

    timeout = 30.0
    """Seconds that a batch may take; the run then saves itself and ends with an error that says so."""

    def __init__(self, ask: Callable[[Sequence[str]], list[str]]) -> None:
        self.ask = ask

    def respond(self, texts: Sequence[str]) -> list[str]:
        """What the server responds; what it raises ends the run with its text."""
        return self.ask(texts)


def right() -> Sums:
    """A pioneer that knows the answer."""
    return Sums(lambda total: total)


def wrong() -> Sums:
    """A pioneer that is always wrong, by one."""
    return Sums(lambda total: total + 1)


def remote() -> Remote:
    """A server made up for this example; a real one is a request by `httpx` or the API's own package."""
    return Remote(lambda prompts: ["7"] * len(prompts))
