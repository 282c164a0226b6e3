"""The example with a reward of both texts: its scores by hand, and its size."""

from pathlib import Path

import pytest

from examples import reward_of_both


@pytest.mark.parametrize(
    ("pioneer", "observer", "score"),
    [
        ("a b", "c d e f", 1.0),  # twice as long
        ("a b", "c d", 0.5),
        ("a", "c d e f", 0.5),  # four times as long
        ("a b", "a b e f", 1 - 1 / 3),  # one of three pairs is copied
        ("a b", "", 0.0),
        ("", "a b", 1.0),  # no word counts as one
    ],
)
def test_scores_are_the_ratio_of_lengths_less_copied_pairs(pioneer, observer, score):
    game = {"pioneer_0": pioneer, "observer_1": observer}
    assert reward_of_both.twice_in_other_words([game]) == [pytest.approx(score)]


def test_it_has_at_most_forty_lines():
    assert len(Path(reward_of_both.__file__).read_text().splitlines()) <= 40
