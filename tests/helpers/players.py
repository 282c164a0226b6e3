"""Functions that load players for evaluations: `tests.helpers.players:NAME`."""

import time

import torch


class Copy:
    """Repeats the query of three letters, with which every prompt of echo begins."""

    def act(self, observation, info):
        return observation[info["response_length"]]


class Chance:
    """Draws from torch's own generator."""

    def act(self, observation, info):
        return torch.randint(0, 4, ()).item()


class Always:
    def __init__(self, action):
        self.action = action

    def act(self, observation, info):
        return self.action


class Watcher:
    """Notes every call and plays 1, the seed at the first token."""

    def __init__(self, seed):
        self.seed, self.calls = seed, []

    def act(self, observation, info):
        self.calls.append((observation.tolist(), dict(info)))
        return self.seed if info["response_length"] == 0 else 1


WATCHERS = []


def copy():
    return Copy()


def chance():
    return Chance()


def two():
    return {"copy": Copy(), "chance": Chance()}


def watcher(seed):
    WATCHERS.append(Watcher(seed))
    return WATCHERS[-1]


def relay_favourite():
    return Always(0)


def outside():
    return Always(8)


def not_a_number():
    return Always(float("nan"))


def nothing():
    return 3


def empty():
    return {}


def reference():
    return {"reference": Copy()}


def broken():
    raise OSError("no model there")


no_function = 3


class Letters:
    """Responds with the same text to every prompt, which it notes."""

    timeout = 5

    def __init__(self, text="ab"):
        self.text, self.read = text, []

    def respond(self, texts):
        self.read += texts
        return [self.text for _ in texts]


class Late(Letters):
    timeout = 0.2

    def respond(self, texts):
        time.sleep(20)


class Failing(Letters):
    def respond(self, texts):
        raise OSError("no quota left")


class OneText(Letters):
    """Responds one text with as many letters as there are prompts."""

    def respond(self, texts):
        return "a" * len(texts)


class Takes(Letters):
    """Takes the prompts off their list, and forgets one response."""

    def respond(self, texts):
        return [texts.pop()[:1] for _ in range(len(texts))][1:]


class Short(Letters):
    def respond(self, texts):
        return texts[1:]


class Numbers(Letters):
    def respond(self, texts):
        return [1 for _ in texts]


class Foreign(Letters):
    def respond(self, texts):
        return ["a?" for _ in texts]


def letters():
    return Letters()
