"""Judges for tests, in a module that is quick to import: each runs in a process of its own."""


def judge(texts):
    """How often the letter e is in a text."""
    return [float(text.count("e")) for text in texts]
