"""The validation split of every task: from train, disjoint and stable. The test split is what it was."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from cory_env import tasks
from cory_env.tasks import echo
from cory_env.tasks.base import counted, validation_queries
from cory_env.tokenizer import CharTokenizer, HFTokenizer

SPLITS = ("train", "validation", "test")
TEXT = CharTokenizer("".join(map(chr, range(32, 127))) + "\n")
POCKET = Path(__file__).parents[3] / "agents" / "cory" / "pocket"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def zeros(texts):
    return [0.0] * len(texts)


WORKED = {"worked": True, "digits": 2, "terms": 3, "signs": "+-"}
ROWS = {
    "prompts": lambda n: {"prompt": f"Add {n}"},
    "gsm8k": lambda n: {"question": f"How much is {n}?", "answer": f"#### {n}"},
    "svamp": lambda n: {"Body": "Ann has pens.", "Question": f"How much is {n}?", "Answer": n},
    "wordproblems": lambda n: {"question": f"How much is {n}?", "answer": n},
    "reviews": lambda n: {"text": f"{n * 37 % 200} is the number of this review"},
}
"""Rows of a data set of 200, by task."""


def build(name, data=None, **options):
    judge = {"judge": zeros} if name in ("prompts", "reviews") else {}
    given = {"tokenizer": TEXT, "data": data} if name in ROWS else {}
    return tasks.load(name, **judge | given | options)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# Recorded with the code of commit 9a2bb10, which had no validation split: the sizes of train and test, the
# first texts of test, and the sha256 of all its texts, one per line.
BEFORE = [
    ("echo", {}, 173, 43, ["acc", "fee", "fdc"], "9bea40c886f94793"),
    ("echo", {"length": 2}, 29, 7, ["ec", "ca", "fc"], "690b70e1ec14b0dd"),
    ("arithmetic", {}, 80, 20, ["8+6=", "5+2=", "3+0="], "f50291cc4e542a16"),
    ("arithmetic", WORKED, 4114, 1006, ["50 + 60 + 97", "55 + 93 - 27"], "1b108cb831e028e1"),
    ("relay", {}, 12, 4, ["ad", "bd", "cd", "dd"], "d694e658de4dd92b"),
    ("prompts", {}, 168, 32, ["Add 0", "Add 6", "Add 17"], "7c0da394bda1b37b"),
    ("gsm8k", {}, 145, 55, ["How much is 1?", "How much is 3?"], "c22c21403cd31a2d"),
    ("svamp", {}, 153, 47, ["Ann has pens. How much is 7?"], "f2ecc2fdf1ea9033"),
    ("wordproblems", {}, 145, 55, ["How much is 1?", "How much is 3?"], "c22c21403cd31a2d"),
    ("reviews", {}, 166, 29, ["192", "14 is ", "51 is "], "3897f280d4898fd7"),
]


@pytest.mark.parametrize(("name", "options", "train", "test", "first", "digest"), BEFORE)
def test_validation_comes_from_train_and_test_is_what_it_was(
    tmp_path, name, options, train, test, first, digest
):
    data = write(tmp_path / "a.jsonl", map(ROWS[name], range(200))) if name in ROWS else None
    task = build(name, data, **options)
    texts = {split: [query.text for query in task.queries(split)] for split in SPLITS}
    assert (texts["test"][: len(first)], len(texts["test"])) == (first, test)
    assert hashlib.sha256("\n".join(texts["test"]).encode()).hexdigest()[:16] == digest
    left_out = task.dropped["validation"] if name == "reviews" else 0
    assert len(texts["train"]) + len(texts["validation"]) + left_out == train
    assert 1 <= len(texts["validation"]) <= max(4, train / 7)
    assert len({text for split in SPLITS for text in set(texts[split])}) == sum(
        len(set(texts[split])) for split in SPLITS
    )
    assert counted(task) == {split: len(texts[split]) for split in SPLITS} | {
        "left_out": [
            "1 of the validation openings (11.1%) are in train or test too and left out",
            "5 of the test openings (14.7%) are in train or validation too and left out",
        ]
        if name == "reviews"
        else []
    }
    drawn = {task.query(np.random.default_rng(seed)).text for seed in range(300)}
    assert drawn <= set(texts["train"])


@pytest.mark.parametrize("name", ROWS)
def test_a_split_does_not_depend_on_the_order_of_the_data(tmp_path, name):
    rows = [ROWS[name](n) for n in range(200)]
    task = build(name, write(tmp_path / "a.jsonl", rows))
    shuffled = build(name, write(tmp_path / "b.jsonl", random.Random(0).sample(rows, 200)))
    for split in SPLITS:
        assert sorted(q.text for q in task.queries(split)) == sorted(q.text for q in shuffled.queries(split))


def test_the_bundled_openings_are_the_ids_and_the_splits_that_all_committed_runs_have():
    transformers = pytest.importorskip("transformers")
    tokenizer = HFTokenizer(transformers.AutoTokenizer.from_pretrained(POCKET / "lm"))
    task = tasks.load("reviews", tokenizer=tokenizer, judge=zeros, data=POCKET / "openings.json")
    ids = {split: [" ".join(map(str, query.ids)) for query in task.queries(split)] for split in SPLITS}
    # recorded at commit 4eff402, which kept ids in the file and took validation by their hash
    assert {split: (len(rows), digest("\n".join(rows))[:16]) for split, rows in ids.items()} == {
        "train": (5533, "61e77c4881bf59a1"),
        "validation": (611, "7dadd24a2a00caad"),
        "test": (1536, "265e615d551bea83"),
    }
    assert all(int(digest(row)[:16], 16) < 2**64 / 10 for row in ids["validation"])
    assert task.queries("test")[1].ids == (33, 2497, 1343, 464, 283, 261, 1034)
    assert (task.max_query, task.left_out) == (7, [])


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("file", ["validation", "valid_1", "dev"])
def test_files_of_a_folder_give_the_validation_split(tmp_path, name, file):
    rows = [ROWS[name](n) for n in range(60)]
    for start, of_split in (("train", rows[:40]), (file, rows[38:52]), ("test", rows[50:])):
        write(tmp_path / f"{start}.jsonl", of_split)
    longest = {"max_query": (12, 12)} if name == "reviews" else {}
    task = build(name, tmp_path, **longest)
    # of the 14 validation rows two are in train and two in test, which keep them
    counts = counted(task)
    key = {"prompts": "prompt", "reviews": "text"}.get(name, "question")
    assert counts.pop("left_out") == [f"4 validation rows have a {key} of train or test, and are left out"]
    assert counts == {"train": 40, "validation": 10, "test": 10}
    every = [query.text for split in SPLITS for query in task.queries(split)]
    assert len(set(every)) == 60


@pytest.mark.parametrize("given", [range(30, 50), [], None], ids=["of other splits", "empty", "missing"])
def test_without_a_validation_row_of_its_own_a_data_set_gives_some_of_train(tmp_path, given):
    write(tmp_path / "train.csv", []).write_text("text\n" + "".join(f"number {n}\n" for n in range(40)))
    (tmp_path / "test.csv").write_text("text\n" + "".join(f"number {n}\n" for n in range(40, 50)))
    if given is not None:
        (tmp_path / "validation.csv").write_text("text\n" + "".join(f"number {n}\n" for n in given))
    task = build("prompts", tmp_path)
    train, validation, test = ([query.text for query in task.queries(split)] for split in SPLITS)
    assert validation
    assert set(train + validation) == {f"number {n}" for n in range(40)}
    assert test == [f"number {n}" for n in range(40, 50)]


def test_a_pool_of_fewer_than_ten_train_queries_stays_whole(tmp_path):
    for split, numbers in (("train", range(9)), ("test", range(9, 12))):
        write(tmp_path / f"{split}.jsonl", map(ROWS["gsm8k"], numbers))
    assert counted(build("gsm8k", tmp_path)) == {"train": 9, "validation": 0, "test": 3, "left_out": []}
    write(tmp_path / "train.jsonl", map(ROWS["gsm8k"], range(20, 30)))
    assert counted(build("gsm8k", tmp_path))["validation"] >= 1


def test_queries_left_out_for_their_length_do_not_empty_the_validation_split(tmp_path):
    rows = [{"prompt": f"{n} {'x' * 50}"} for n in range(100)] + [{"prompt": f"{n}"} for n in range(20, 40)]
    task = build("prompts", write(tmp_path / "a.jsonl", rows), max_query=10)
    assert len(task.queries("validation")) >= 1
    assert len([query for split in SPLITS for query in task.queries(split)]) == 20


def test_validation_openings_of_train_or_test_are_left_out_and_reported(tmp_path):
    files = {
        "train": ["aaaa one", "bbbb two"],
        "validation": ["aaaa three", "cccc four", "dddd five", "eeee six"],
        "test": ["aaaa seven", "cccc eight", "ffff nine"],
    }
    for split, texts in files.items():
        write(tmp_path / f"{split}.jsonl", [{"text": text} for text in texts])
    task = build("reviews", tmp_path, max_query=(4, 4))
    assert [query.text for query in task.queries("validation")] == ["dddd", "eeee"]
    assert [query.text for query in task.queries("test")] == ["cccc", "ffff"]
    assert (task.dropped, task.overlap["validation"]) == ({"validation": 2, "test": 1}, 0.5)
    assert task.left_out == [
        "2 of the validation openings (50.0%) are in train or test too and left out",
        "1 of the test openings (33.3%) are in train or validation too and left out",
    ]


def test_a_test_opening_that_a_validation_review_begins_with_stays_left_out(tmp_path):
    # 200 reviews, two of each opening: one of a pair may be of validation, and test shares neither
    write(tmp_path / "train.jsonl", [{"text": f"{n % 100:03} {n}"} for n in range(200)])
    write(tmp_path / "test.jsonl", [{"text": f"{n:03} test"} for n in range(90, 110)])
    task = build("reviews", tmp_path, max_query=(3, 3))
    assert [query.text for query in task.queries("test")] == [f"{n:03}" for n in range(100, 110)]


def test_when_every_validation_opening_is_in_train_the_openings_are_divided_instead(tmp_path):
    # ten openings, each of twenty reviews
    write(tmp_path / "train.jsonl", [{"text": f"{n % 10} {n}"} for n in range(200)])
    write(tmp_path / "test.jsonl", [{"text": f"{letter} {letter}"} for letter in "abc"])
    task = build("reviews", tmp_path, max_query=(1, 1))
    train, validation = ([query.text for query in task.queries(split)] for split in ("train", "validation"))
    assert (len(train), len(validation)) in {(180, 20), (160, 40), (140, 60)}
    assert not set(train) & set(validation)


def test_openings_may_come_with_a_validation_split(tmp_path):
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"train": ["a film"], "validation": ["b", "a film"], "test": ["so"]}))
    task = tasks.load("reviews", tokenizer=TEXT, judge=zeros, data=path)
    assert [query.text for query in task.queries("validation")] == ["b"]
    path.write_text(json.dumps({"train": ["a film"], "validation": [7], "test": ["so"]}))
    with pytest.raises(ValueError, match="under 'validation'"):
        tasks.load("reviews", tokenizer=TEXT, judge=zeros, data=path)


def test_every_length_of_an_opening_occurs_in_validation(tmp_path):
    # both the length and the split of a review come from its hash
    rows = [{"text": f"{n:04} is the number of this review"} for n in range(2000)]
    task = build("reviews", write(tmp_path / "a.jsonl", rows), max_query=(4, 9))
    lengths = [len(query.ids) for query in task.queries("validation")]
    assert min(lengths.count(length) for length in range(4, 10)) > len(lengths) / 12


class WithoutValidation(echo.Task):
    """A task of another package, with two splits; any other name gives what `unknown` returns."""

    def __init__(self, unknown):
        super().__init__()
        self.unknown = unknown

    def queries(self, split):
        return super().queries(split) if split in ("train", "test") else self.unknown(self, split)


@pytest.mark.parametrize(
    "unknown",
    [
        lambda task, split: {"train": (), "test": ()}[split],
        lambda task, split: ["train", "test"].index(split),
        lambda task, split: task.queries("test"),
        lambda task, split: task.queries("train"),
        lambda task, split: [],
    ],
    ids=["KeyError", "ValueError", "test", "train", "none"],
)
def test_a_task_that_has_no_validation_split_has_no_validation_queries(unknown):
    task = WithoutValidation(unknown)
    assert len(validation_queries(task)) == 0
    assert counted(task) == {"train": 152, "validation": 0, "test": 43, "left_out": []}
    assert len(validation_queries(echo.Task())) == 21
