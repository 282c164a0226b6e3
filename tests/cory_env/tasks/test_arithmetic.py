import pytest

from cory_env import Response, make_views
from cory_env.tasks.arithmetic import Task


def ask(task, text):
    return next(q for split in ("train", "test") for q in task.queries(split) if q.text == text)


@pytest.mark.parametrize(
    ("options", "text", "answer"),
    [
        ({}, "3+4=", "7"),
        ({"signs": "+-*"}, "3-4=", "-1"),
        ({"signs": "*"}, "7*8=", "56"),
        ({"signs": "-", "terms": 3}, "9-5-1=", "3"),
    ],
)
def test_only_the_answer_alone_scores(options, text, answer):
    task = Task(**options)
    query = ask(task, text)
    said = [answer, f" {answer} ", answer + "0", "", "0" + answer]
    responses = [Response.of(task.tokenizer.encode(s), task.tokenizer) for s in said]
    assert task.score([query] * 5, responses) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_difficulty_can_be_set_and_splits_are_distinct_and_disjoint():
    easy, hard = Task(), Task(digits=3, terms=4, signs="+-")
    # all 100 sums of two digits; longest: four numbers of three digits, three signs, one =
    assert (len(easy.queries("train")), len(easy.queries("test")), easy.max_query) == (80, 20, 4)
    assert (len(hard.queries("train")), len(hard.queries("test")), hard.max_query) == (820, 204, 16)
    for task in (easy, hard):
        texts = [query.text for split in ("train", "test") for query in task.queries(split)]
        assert len(set(texts)) == len(texts)


def test_the_observer_reads_the_attempt_before_the_problem():
    task = Task()
    encode, decode = task.tokenizer.encode, task.tokenizer.decode
    third = make_views(task, seats=3)[2]
    assert decode(third.prompt(encode("3+4="), [encode("8"), encode("7")])) == "3+4=8;3+4=7;3+4="


@pytest.mark.parametrize("options", [{"digits": 0}, {"terms": 1}, {"signs": ""}, {"signs": "/"}])
def test_impossible_problems_are_refused(options):
    with pytest.raises(ValueError, match=r"arithmetic cannot have .* signs out of"):
        Task(**options)
