"""Splits: train, validation and test share no text, and a hash of the text chooses among them."""

import hashlib
import random

import pytest

from cory_env.data.splits import in_validation, separate, take_validation, text_hash


def test_a_single_file_is_divided_by_the_sha256_of_the_text():
    # sha256("a") begins with ca978112ca1bbdca, sha256("b") with 3e23e8160039594a; modulo 5 that is the sum of
    # the hexadecimal digits, 130 and 91, since 16 is 1 modulo 5: only "a" is divisible, so it is for test
    rows = [{"t": "a", "n": 1}, {"t": "b", "n": 2}, {"t": "a", "n": 3}]
    assert separate({"whole": rows}, "t", where="here") == (
        {"train": [rows[1]], "test": [rows[0]]},
        ["1 rows repeat an earlier t with other values, and are left out"],
    )


def test_too_few_different_texts_are_refused_with_the_number_that_is_needed():
    rows = [{"t": "b"}] * 20  # not for test, by the sums above
    needed = "which leaves 1 of 20 rows, .* give 30 or more different ones"
    with pytest.raises(ValueError, match=f"here has no rows for test: equal texts count once, {needed}"):
        separate({"whole": rows}, "t", where="here")
    with pytest.raises(ValueError, match=r"has no rows for train: .* leaves 1 of 1 rows"):
        separate({"whole": [{"t": "a"}]}, "t", where="here")


def test_a_text_of_train_is_not_in_test_and_order_is_kept():
    rows = {"train": [{"t": "z"}, {"t": "a"}, {"t": "z"}], "test": [{"t": "y"}, {"t": "a"}, {"t": "b"}]}
    assert separate(rows, "t", where="here") == (
        {"train": [{"t": "z"}, {"t": "a"}], "test": [{"t": "y"}, {"t": "b"}]},
        ["1 test rows have a t of train, and are left out"],
    )
    with pytest.raises(
        ValueError, match=r"here has no rows for test \(1 read, less those that train has too\)"
    ):
        separate({"train": [{"t": "a"}], "test": [{"t": "a"}]}, "t", where="here")


def test_given_validation_rows_leave_out_the_texts_of_train_and_test_and_never_change_those():
    rows = {
        name: [{"t": text} for text in texts]
        for name, texts in {"train": "zaz", "validation": "vyavw", "test": "yab"}.items()
    }
    assert separate(rows, "t", where="here") == (
        {
            "train": [{"t": "z"}, {"t": "a"}],
            "validation": [{"t": "v"}, {"t": "w"}],
            "test": [{"t": "y"}, {"t": "b"}],
        },
        [
            "2 validation rows have a t of train or test, and are left out",
            "1 test rows have a t of train, and are left out",
        ],
    )
    shared = rows | {"validation": [{"t": "y"}, {"t": "z"}]}
    assert "validation" not in separate(shared, "t", where="here")[0]


TEXTS = [f"text {n}" for n in range(2000)]


def first_bytes(text):
    """The first eight bytes of the sha256 as a number, by another library call than the code uses."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)


def test_a_tenth_of_the_texts_is_taken_by_hash_whatever_their_order():
    train, validation = take_validation(TEXTS, str)
    assert validation == [text for text in TEXTS if first_bytes(text) < 2**64 / 10]
    assert train == [text for text in TEXTS if text not in validation]
    assert 160 < len(validation) < 240
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert set(take_validation(shuffled, str)[1]) == set(validation)
    # a text's split does not depend on the other texts
    assert take_validation(TEXTS[:500], str)[1] == [text for text in validation if text in TEXTS[:500]]


def test_items_of_one_text_stay_together():
    train, validation = take_validation([(text, n) for text in TEXTS[:100] for n in range(2)], lambda p: p[0])
    assert not {text for text, _ in train} & {text for text, _ in validation}
    assert len(train) + len(validation) == 200


def test_the_residues_of_the_hash_are_free_for_other_choices():
    taken = take_validation(TEXTS, str)[1]
    counts = [sum(text_hash(text) % 6 == residue for text in taken) for residue in range(6)]
    assert min(counts) > len(taken) / 6 / 2


def test_of_ten_texts_one_is_taken_at_least_and_of_fewer_none():
    rest = [text for text in TEXTS if not in_validation(text)]
    smallest = min(rest[:10], key=first_bytes)
    assert take_validation(rest[:10], str) == ([t for t in rest[:10] if t != smallest], [smallest])
    assert take_validation(rest[9::-1], str)[1] == [smallest]
    few = next(TEXTS[i : i + 9] for i in range(0, 2000, 9) if any(map(in_validation, TEXTS[i : i + 9])))
    assert take_validation(few, str) == (few, [])
    assert take_validation(few * 2, str) == (few * 2, [])  # nine texts, each twice
