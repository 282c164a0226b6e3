"""The programs task: functions, splits, scores, prompts and hostile responses."""

import subprocess
import sys
import time

import numpy as np
import pytest

from cory_env import Response, VectorGame, make_views, tasks
from cory_env.tasks.programs import matching, random_expression


def responses(*texts):
    return [Response((), text) for text in texts]


@pytest.fixture(scope="module")
def task():
    return tasks.load("programs")


def query_of(task, values):
    return next(q for s in ("train", "test") for q in task.queries(s) if q.row["values"] == values)


def test_a_query_lists_the_values_from_1_on(task):
    query = query_of(task, (3, 5, 7))
    assert query.text == "f(1)=3 f(2)=5 f(3)=7"
    assert task.tokenizer.decode(query.ids) == query.text
    assert task.max_query == max(len(q.text) for s in ("train", "test") for q in task.queries(s))


def test_any_expression_with_all_the_values_is_right_and_nothing_else(task):
    query = query_of(task, (3, 5, 7))
    right = ["x+x+1", "2*x+1", "1 + 2*x", "x+(x+1)", "(x+1)*(x+1)-x*x"]
    wrong = ["x+2", "2*x", "3", "", "2*x+1;", "2*x+1 f(x)=2*x+1", "lambda x: 2*x+1", "x*x+x+1"]
    assert task.score([query] * 13, responses(*right, *wrong)) == [1.0] * 5 + [0.0] * 8


def test_partial_pays_a_fraction_of_the_share_of_values_and_is_0_by_default(task):
    query = query_of(task, (3, 5, 7))
    # x+2 is 3 4 5, so one of three; x*x+1 is 2 5 10, one; 100 none, and so "x+"
    attempts = responses("x+2", "x*x+1", "x+x+1", "x+", "100")
    assert task.score([query] * 5, attempts) == [0, 0, 1, 0, 0]
    generous = tasks.load("programs", partial=0.5)
    assert generous.score([query] * 5, attempts) == [0.5 / 3, 0.5 / 3, 1, 0, 0]


def test_one_value_that_grows_too_large_costs_that_example_only():
    # 10^6 x^6 for 1, 2, 3, 100: the last is 10^18
    assert matching("1000000*x*x*x*x*x*x", [1_000_000, 64_000_000, 729_000_000]) == 1
    assert matching("x*999999999999", [999_999_999_999, 5]) == 0.5


def test_prompts_are_the_examples_and_every_earlier_attempt(task):
    pioneer, observer, third = make_views(task, seats=3)
    query = query_of(task, (3, 5, 7))
    attempts = [[*task.tokenizer.encode("x+2"), min(task.tokenizer.eos)], task.tokenizer.encode("x*3")]
    prompts = [task.tokenizer.decode(view.prompt(query.ids, attempts)) for view in (observer, third)]
    assert task.tokenizer.decode(pioneer.prompt(query.ids, [])) == "f(1)=3 f(2)=5 f(3)=7 f(x)="
    assert prompts[0] == "f(1)=3 f(2)=5 f(3)=7 f(x)=x+2 f(x)="
    assert prompts[1] == "f(1)=3 f(2)=5 f(3)=7 f(x)=x+2 f(x)=x*3 f(x)="


@pytest.mark.parametrize(
    "options", [{}, {"operations": 3}, {"operations": 1}, {"signs": "+"}, {"examples": 5}], ids=str
)
def test_no_function_of_test_is_in_train_and_every_one_has_a_solution(options):
    task = tasks.load("programs", **options)
    train, test = task.queries("train"), task.queries("test")
    assert not {q.row["values"] for q in train} & {q.row["values"] for q in test}
    assert not {q.text for q in train} & {q.text for q in test}
    for queries in (train, test):
        assert task.score(queries, responses(*(q.row["program"] for q in queries))) == [1.0] * len(queries)
        assert all("x" in q.row["program"] and len(set(q.row["values"])) > 1 for q in queries)
    assert 0.1 < len(test) / (len(train) + len(test)) < 0.3


def test_with_one_sum_and_two_values_the_functions_are_known():
    # x+x and x+1 to x+9, as values for 1 and 2; 1+x is the same function as x+1
    task = tasks.load("programs", operations=1, largest=9, signs="+", examples=2)
    values = {q.row["values"] for split in ("train", "test") for q in task.queries(split)}
    assert values == {(2, 4), *((1 + n, 2 + n) for n in range(1, 10))}


def test_a_function_has_the_same_split_for_every_seed_and_difficulty(task):
    split_by_text = {q.text: s for s in ("train", "test") for q in task.queries(s)}
    for options in ({"seed": 1}, {"operations": 4}, {"largest": 5}):
        other = tasks.load("programs", **options)
        other_split = {q.text: s for s in ("train", "test") for q in other.queries(s)}
        shared = split_by_text.keys() & other_split.keys()
        assert len(shared) > 50
        assert all(split_by_text[text] == other_split[text] for text in shared)
    assert split_by_text.keys() != {
        q.text for s in ("train", "test") for q in tasks.load("programs", seed=1).queries(s)
    }


def test_problems_are_the_same_in_every_process(task):
    code = (
        "from cory_env.tasks.programs import Task; print(*(q.text for q in Task().queries('test')), sep=';')"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip().split(";") == [q.text for q in task.queries("test")]


@pytest.mark.parametrize("operations", range(6))
def test_random_expressions_have_the_given_number_of_signs_and_the_values_of_python(operations):
    rng = np.random.default_rng(operations)
    for _ in range(300):
        text = random_expression(rng, operations, largest=9, signs="+-*")
        assert sum(text.count(sign) for sign in "+-*") == operations
        assert matching(text, [eval(text, {"x": x}) for x in (1, 2, 3)]) == 1


def test_a_hostile_response_scores_0_and_takes_little_time(task):
    query = query_of(task, (3, 5, 7))
    hostile = [
        "x+" * 5_000_000,
        "(" * 1_000_000,
        "9" * 10_000,
        "*".join("9" * 99),
        "while True: pass",
        "2*x+1",
    ]
    start = time.perf_counter()
    assert task.score([query] * 6, responses(*hostile)) == [0, 0, 0, 0, 0, 1]
    assert time.perf_counter() - start < 3


def test_a_game_is_played_and_scored(task):
    query = query_of(task, (3, 5, 7))
    game = VectorGame(task, max_response=6)
    game.reset([query], 6)
    for seat, text in zip(game.seats, ("x+2", "2*x+1"), strict=True):
        ids = [*task.tokenizer.encode(text), min(task.tokenizer.eos)]
        game.respond(seat, np.array([[*ids, *[task.tokenizer.pad] * 6][:6]]), np.array([len(ids)]))
    assert game.scores().tolist() == [[0.0, 1.0]]
    assert game.payoffs().tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"operations": 0}, "operations is 0; give 1 to 9"),
        ({"examples": 100}, "examples is 100; give 1 to 99"),
        ({"largest": 0}, "largest is 0"),
        ({"signs": "+/"}, r"signs is '\+/'; give some of '\+-\*'"),
        ({"signs": ""}, "signs is ''"),
        ({"partial": 1.5}, "partial is 1.5; give a number from 0 to below 1"),
        ({"partial": float("nan")}, "partial is nan"),
        ({"operations": 1, "largest": 1, "signs": "-"}, "so few functions .* leave none for"),
    ],
)
def test_wrong_options_are_refused(options, fault):
    with pytest.raises(ValueError, match=fault):
        tasks.load("programs", **options)
