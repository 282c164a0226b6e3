"""The echo task: queries, scores, and scores of arrays."""

import numpy as np
import pytest

from cory_env import Query, Response
from cory_env.tasks.echo import Task
from cory_env.tokenizer import CharTokenizer


@pytest.mark.parametrize(
    ("text", "score"), [("abc", 1.0), ("abcd", 1.0), ("ab", 2 / 3), ("bca", 0.0), ("", 0.0)]
)
def test_the_score_is_the_share_repeated_in_place(text, score):
    task = Task()
    response = Response.of(task.tokenizer.encode(text), task.tokenizer)
    assert task.score([Query("abc", (0, 1, 2))], [response]) == [pytest.approx(score)]


def test_splits_are_the_same_everywhere_distinct_and_disjoint():
    task = Task(length=3)
    train, validation, test = (
        [query.ids for query in task.queries(split)] for split in ("train", "validation", "test")
    )
    assert len({*train, *validation, *test}) == len(train) + len(validation) + len(test) == 6**3
    assert (len(test), train) == (43, [query.ids for query in Task(length=3).queries("train")])
    with pytest.raises(ValueError, match="no split called 'dev'; there are train, validation, test"):
        task.queries("dev")


def test_queries_are_drawn_from_train_and_avoid_special_ids():
    task = Task(CharTokenizer("xyz", stops=2), length=2)
    rng = np.random.default_rng(0)
    drawn = {task.query(rng).ids for _ in range(200)}
    assert drawn == {query.ids for query in task.queries("train")}
    assert {i for ids in drawn for i in ids} == {0, 1, 2}


def test_nothing_to_repeat_is_refused():
    with pytest.raises(ValueError, match="echo of length 0 over 6 letters has nothing to repeat"):
        Task(length=0)
    with pytest.raises(ValueError, match="echo of length 3 over 1 letters"):
        Task(CharTokenizer("a"))
