"""examples/rewards.py, worked out by hand."""

import pytest

from examples import rewards


def chat(words):
    return [{"role": "assistant", "content": words}]


def test_rouge_l_by_hand():
    # the cat on the mat: 5 words of 6 and of 5, F1 = 2 * 5 / 11; the cat: 2 of 5 and of 5
    assert rewards.overlap(["-"], ["The cat sat on the mat."], ["the cat, on the mat"]) == [
        pytest.approx(10 / 11)
    ]
    assert rewards.overlap(["-"], ["the mat: the cat sat"], ["the cat on the mat"]) == [pytest.approx(4 / 10)]
    assert rewards.overlap(["-"] * 3, ["", "dog", chat("cat")], ["cat", "", "cat"], more=[0] * 3) == [0, 0, 1]


def test_brevity_is_the_share_of_words_saved():
    assert rewards.brevity(["one two three four"] * 2, ["one", "1 2 3 4 5"]) == [0.75, -0.25]


def test_dialogue_by_hand():
    before = [{"role": "user", "content": "How are you today?"}]
    # three words, new, a question: 1.5; three of which both pairs were heard: 1.5 - 1; too short: 0; "no no"
    # four times: pairs no-no three times, two of them stale: 1 - 2/3
    texts = ["Fine, and you?", "How are you?", "Fine", "no no no no"]
    got = rewards.converses([before] * 4, [chat(words) for words in texts])
    assert got == pytest.approx([1.5, 0.5, 0, 1 / 3])
