"""Data in memory: every shape becomes the same file, whose name is a hash of content and structure."""

import datetime

import numpy as np
import pandas as pd
import pytest

from cory.api.datasets import named_as_given, with_dataset
from cory_env.data.tables import read_tables
from cory_env.tasks import load
from cory_env.tokenizer import CharTokenizer

ROWS = [{"prompt": f"film {n}", "answer": n} for n in range(30)]


def written(dataset, folder):
    """The path that a run on this data has in its settings."""
    return with_dataset({}, dataset, folder)["task.data"]


def rows_of(dataset, folder):
    """The rows that a task reads of this data."""
    (table,) = read_tables(written(dataset, folder))["whole"]
    columns = {name: table.values(name) for name in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def divided(k, names=("train", "test")):
    return dict(zip(names, (ROWS[:k], ROWS[k:]), strict=True))


def test_a_path_is_that_path_whatever_it_is_called_and_options_of_the_task_stay(tmp_path):
    assert with_dataset({}, "None", tmp_path) == {"task": "prompts", "task.data": "None"}
    settings = {"task": "svamp", "task.chat": True}
    assert with_dataset(settings, "-m", tmp_path) == settings | {"task.data": "-m"}


def test_the_same_rows_divided_otherwise_are_other_data(tmp_path):
    row = ROWS[:1]
    every = [
        divided(25),
        divided(10),
        divided(10, ("train", "validation")),
        divided(10, ("test", "train")),
        {"train": ROWS[:10], "validation": ROWS[10:20], "test": ROWS[20:]},
        {"train": ROWS[:20], "test": ROWS[20:]},
        {"train": row * 2, "test": row},
        {"train": row, "test": row * 2},
        {"train": ROWS},
        ROWS,
        ROWS[::-1],
        [{"answer": row["answer"], "prompt": row["prompt"]} for row in ROWS],
        [{"query": row["prompt"], "answer": row["answer"]} for row in ROWS],
        [row | {"answer": str(row["answer"])} for row in ROWS],
    ]
    paths = [written(dataset, tmp_path) for dataset in every]
    assert len(set(paths)) == len(every)
    assert [written(dataset, tmp_path) for dataset in every] == paths
    read = read_tables(paths[1])
    assert {split: len(table.values("prompt")) for split, (table,) in read.items()} == {
        "train": 10,
        "test": 20,
    }


def test_rows_of_a_split_of_another_name_are_missed_aloud(tmp_path):
    splits = {"train": ROWS, "eval": ROWS, "testing": ROWS}
    path = written(splits, tmp_path)
    with pytest.warns(UserWarning, match=r"^eval\.jsonl of .* is not used"):
        assert read_tables(path).keys() == {"train", "test"}


def test_a_series_is_a_column(tmp_path):

    assert rows_of(pd.Series(["a", "b"], name="prompt"), tmp_path) == [{"prompt": "a"}, {"prompt": "b"}]


def test_a_file_that_was_changed_since_is_written_again(tmp_path):
    path = written(ROWS, tmp_path)
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"prompt": "another"}')
    assert rows_of(ROWS, tmp_path) == ROWS


def test_data_without_a_test_split_are_divided_alike_in_every_shape(tmp_path):
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(ROWS)
    shapes = [
        ROWS,
        {"train": ROWS},
        datasets.DatasetDict(train=made),
        made,
        {"train": made, "unsupervised": made.select([0])},
        pd.DataFrame(ROWS),
        {"prompt": [row["prompt"] for row in ROWS], "answer": np.arange(30)},
        made.to_pandas(),
        made.data.table,
        {"train": pd.DataFrame(ROWS)},
    ]
    for shape in shapes:
        assert rows_of(shape, tmp_path) == ROWS
    assert rows_of([row["prompt"] for row in ROWS], tmp_path) == [{"text": row["prompt"]} for row in ROWS]


def test_values_that_json_lacks_become_texts_and_numbers(tmp_path):
    day = datetime.datetime(2024, 5, 1, 12, 30)
    values = {
        "time": (pd.Timestamp(day), "2024-05-01T12:30:00"),
        "day": (day.date(), "2024-05-01"),
        "numpy_time": (np.datetime64("2024-05-01T12:30"), "2024-05-01T12:30"),
        "number": (np.int64(7), 7),
        "truth": (np.bool_(True), True),
        "list": (np.array([1.5, 2]), [1.5, 2]),
        "bytes": ("größer".encode(), "größer"),
        "nested": ({"n": [np.float32(0.5)]}, {"n": [0.5]}),
    }
    row = {"prompt": "a"} | {name: value for name, (value, _) in values.items()}
    expected = {"prompt": "a"} | {name: value for name, (_, value) in values.items()}
    assert rows_of([row], tmp_path) == [expected]
    frame = pd.DataFrame({"prompt": ["a", "b"], "time": [pd.Timestamp(day), pd.NaT], "n": [1.0, None]})
    assert rows_of(frame, tmp_path)[1] == {"prompt": "b", "time": None, "n": None}


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (
            {"prompt": ["a", "b"], "answer": [1]},
            "is a dict of 'prompt', 'answer'; give lists of rows by split",
        ),
        ({"prompt": "a", "answer": 1}, "give lists of rows by split"),
        ([ROWS[0], {"prompt": "a", "data": b"\xff"}], "row 2 of the dataset .*column 'data' holds b'.xff'"),
        ([{"prompt": "a \ud83d"}], "row 1 of the dataset .*column 'prompt' .*surrogates not allowed"),
        (
            {"train": ROWS, "test": [{"prompt": {1}}]},
            "row 1 of the dataset, test .*column 'prompt' holds {1}",
        ),
    ],
)
def test_data_that_cannot_be_written_are_refused_by_row_and_column(dataset, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        written(dataset, tmp_path)


def test_data_in_memory_are_not_called_by_their_file_in_messages(tmp_path):
    for dataset in (ROWS[:2], {"train": [{"prompt": ""}], "test": ROWS}):
        path = written(dataset, tmp_path)
        with pytest.raises(ValueError, match="the dataset") as caught, named_as_given(dataset, path):
            load("prompts", tokenizer=CharTokenizer("film 0123456789"), judge=len, data=path)
        assert str(tmp_path) not in str(caught.value)
