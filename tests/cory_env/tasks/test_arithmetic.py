"""The arithmetic task: problems, splits, scores and prompts, with and without steps."""

import pytest

from cory_env import Response, make_views
from cory_env.data.splits import in_test
from cory_env.tasks.arithmetic import Task, expression, steps, worked

SPLITS = ("train", "validation", "test")


def query_of(task, text):
    return next(q for split in SPLITS for q in task.queries(split) if q.text == text)


@pytest.mark.parametrize(
    ("options", "text", "answer"),
    [
        ({}, "3+4=", "7"),
        ({"signs": "+-*"}, "3-4=", "-1"),
        ({"signs": "*"}, "7*8=", "56"),
        ({"signs": "-", "terms": 3}, "9-5-1=", "3"),
    ],
)
def test_only_the_exact_result_scores(options, text, answer):
    task = Task(**options)
    query = query_of(task, text)
    texts = [answer, f" {answer} ", answer + "0", "", "0" + answer]
    responses = [Response.of(task.tokenizer.encode(text), task.tokenizer) for text in texts]
    assert task.score([query] * 5, responses) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_difficulty_is_an_option_and_splits_are_distinct_and_disjoint():
    easy, hard = Task(), Task(digits=3, terms=4, signs="+-")
    # all 100 sums of two digits; longest: four numbers of three digits, three signs, one =
    assert (len(easy.queries("train")), len(easy.queries("test")), easy.max_query) == (70, 20, 4)
    assert (len(hard.queries("train")), len(hard.queries("test")), hard.max_query) == (743, 204, 16)
    assert (len(easy.queries("validation")), len(hard.queries("validation"))) == (80 - 70, 820 - 743)
    for task in (easy, hard):
        texts = [query.text for split in SPLITS for query in task.queries(split)]
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


WORKED = {"worked": True, "digits": 2, "terms": 3, "signs": "+-"}


@pytest.mark.parametrize(
    ("numbers", "signs", "answer"),
    [
        ((37, 48, 12), "+-", "37 + 48 = 85\n85 - 12 = 73\n#### 73"),
        ((3, 4, 5), "+*", "4 * 5 = 20\n3 + 20 = 23\n#### 23"),  # products first
        ((2, 3, 4, 5), "*-*", "2 * 3 = 6\n4 * 5 = 20\n6 - 20 = -14\n#### -14"),
    ],
)
def test_a_worked_answer_shows_each_step_and_marks_the_last_result(numbers, signs, answer):
    assert worked(steps(numbers, signs)) == answer
    assert eval(expression(numbers, signs)) == int(answer.rpartition(" ")[2])


@pytest.mark.slow
def test_worked_solutions_are_right_and_no_step_goes_below_zero():
    task = Task(**WORKED | {"signs": "+-*"})
    for query in [*task.queries("train")[:200], *task.queries("test")[:50]]:
        lines = query.row["answer"].split("\n")
        assert lines[-1] == f"#### {eval(query.text)}"
        for line in lines[:-1]:
            left, right = line.split(" = ")
            assert eval(left) == int(right) >= 0


def test_worked_responses_score_by_their_final_number_only():
    task = Task(**WORKED)
    query = query_of(task, next(q.text for q in task.queries("test")))
    right = int(query.row["answer"].rpartition(" ")[2])
    texts = [
        query.row["answer"],
        f"#### {right}",
        f" so it is {right}",
        f"1 + 1 = 3\n#### {right}",
        f"#### {right + 1}",
        f"{right}\n#### {right}0",
        "",
    ]
    responses = [Response.of(task.tokenizer.encode(text), task.tokenizer) for text in texts]
    assert task.score([query] * 7, responses) == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.slow
def test_worked_problems_are_divided_by_their_text_at_every_difficulty():
    easy, hard = Task(worked=True), Task(**WORKED)
    # 100 sums of two digits
    assert sum(len(easy.queries(split)) for split in SPLITS) == 100
    assert sum(len(hard.queries(split)) for split in SPLITS) == 5120
    assert 900 < len(hard.queries("test")) < 1150
    for task in (easy, hard):
        for split in ("train", "validation"):
            assert not any(in_test(query.text) for query in task.queries(split))
        assert all(in_test(query.text) for query in task.queries("test"))


def test_the_worked_prompts_have_the_template_of_gsm8k():
    task = Task(**WORKED)
    encode, decode = task.tokenizer.encode, task.tokenizer.decode
    pioneer, _, third = make_views(task, seats=3)
    query = task.queries("test")[0]
    assert decode(pioneer.prompt(query.ids, [])) == f"Question: {query.text}\nAnswer:"
    assert decode(third.prompt(query.ids, [encode(" 3 + 4 = 7\n#### 7"), encode(" 8")])) == (
        f"Question: {query.text}\nReference: 3 + 4 = 7\n#### 7\nReference: 8\nAnswer:"
    )
