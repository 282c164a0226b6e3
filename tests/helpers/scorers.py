"""A judge that any model's responses can be scored by. Quick to import for workers."""


def judge(texts):
    """The number of letters e in each text."""
    return [float(text.count("e")) for text in texts]
