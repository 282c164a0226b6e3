"""Parts of the reviews, snippets, first words."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.pocket_models import corpus


@pytest.fixture
def data(tmp_path):
    """Sixty films with five reviews each."""
    rows = [
        (f"review {i} of film {film}<br />says film {film}", i % 2, f"tt{film}")
        for film in range(60)
        for i in range(5)
    ]
    text, label, movie = zip(*rows, strict=True)
    pq.write_table(pa.table({"text": text, "label": label, "movie": movie}), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def test_parts_share_no_movie_and_leave_none_out(data):
    shares = [corpus.JUDGE, corpus.JUDGE_HELD_OUT, corpus.SECOND_JUDGE, corpus.SECOND_JUDGE_HELD_OUT]
    films = [{text.split()[-1] for text in corpus.part(data, share)[0]} for share in shares]
    assert sum(len(part) for part in films) == 60
    assert len(set().union(*films)) == 60


def test_part_keeps_labels_with_their_texts_and_replaces_line_breaks(data):
    texts, labels = corpus.part(data, (0.0, 1.0))
    assert (texts[3], labels[3]) == ("review 3 of film 0 says film 0", 1)
    assert len(texts) == 300


def test_unlabelled_reviews_are_refused(tmp_path):
    table = pa.table({"text": ["a", "b"], "label": [1, -1], "movie": ["tt1", "tt2"]})
    pq.write_table(table, tmp_path / "unsup.parquet")
    with pytest.raises(ValueError, match="holds reviews without a label"):
        corpus.part(tmp_path / "unsup.parquet", (0.0, 1.0))


def test_snippets_are_consecutive_words_of_a_length_in_the_range():
    words = [f"w{i}" for i in range(50)]
    rng = random.Random(0)
    drawn = [corpus.snippet(" ".join(words), rng, words=(4, 9), opening=0.5).split() for _ in range(400)]
    assert {len(s) for s in drawn} == {4, 5, 6, 7, 8, 9}
    assert all(s == words[words.index(s[0]) :][: len(s)] for s in drawn)
    # half are openings by choice, one in 45 by chance
    assert 0.4 < sum(s[0] == "w0" for s in drawn) / 400 < 0.62


def test_a_text_shorter_than_its_snippet_is_taken_whole():
    assert (
        corpus.snippet("three little words", random.Random(0), words=(5, 9), opening=0.0)
        == "three little words"
    )


def test_first_words():
    assert corpus.first_words("one  two\nthree four", 3) == "one two three"
