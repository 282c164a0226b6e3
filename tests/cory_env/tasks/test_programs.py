import subprocess
import sys
import time

import numpy as np
import pytest

from cory_env import Response, VectorGame, make_views, tasks
from cory_env.tasks.programs import matching, random_expression


def said(*texts):
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


def test_any_expression_that_has_all_the_values_is_right_and_nothing_else(task):
    query = query_of(task, (3, 5, 7))
    right = ["x+x+1", "2*x+1", "1 + 2*x", "x+(x+1)", "(x+1)*(x+1)-x*x"]
    wrong = ["x+2", "2*x", "3", "", "2*x+1;", "2*x+1 f(x)=2*x+1", "lambda x: 2*x+1", "x*x+x+1"]
    assert task.score([query] * 13, said(*right, *wrong)) == [1.0] * 5 + [0.0] * 8


def test_partial_pays_a_share_of_the_share_and_is_off_unless_asked_for(task):
    query = query_of(task, (3, 5, 7))
    # x+2 is 3 4 5, so one of three; x*x+1 is 2 5 10, one; 100 none, and so "x+"
    texts = said("x+2", "x*x+1", "x+x+1", "x+", "100")
    assert task.score([query] * 5, texts) == [0, 0, 1, 0, 0]
    generous = tasks.load("programs", partial=0.5)
    assert generous.score([query] * 5, texts) == [0.5 / 3, 0.5 / 3, 1, 0, 0]


def test_one_value_that_grows_too_large_costs_that_example_only():
    # 10^6 x^6 for 1, 2, 3, 100: the last is 10^18
    assert matching("1000000*x*x*x*x*x*x", [1_000_000, 64_000_000, 729_000_000]) == 1
    assert matching("x*999999999999", [999_999_999_999, 5]) == 0.5


def test_prompts_are_the_examples_and_every_earlier_try(task):
    pioneer, observer, third = make_views(task, seats=3)
    query = query_of(task, (3, 5, 7))
    tries = [[*task.tokenizer.encode("x+2"), min(task.tokenizer.eos)], task.tokenizer.encode("x*3")]
    read = [task.tokenizer.decode(view.prompt(query.ids, tries)) for view in (observer, third)]
    assert task.tokenizer.decode(pioneer.prompt(query.ids, [])) == "f(1)=3 f(2)=5 f(3)=7 f(x)="
    assert read[0] == "f(1)=3 f(2)=5 f(3)=7 f(x)=x+2 f(x)="
    assert read[1] == "f(1)=3 f(2)=5 f(3)=7 f(x)=x+2 f(x)=x*3 f(x)="


@pytest.mark.parametrize(
    "options", [{}, {"operations": 3}, {"operations": 1}, {"signs": "+"}, {"examples": 5}], ids=str
)
def test_no_function_of_test_is_in_train_and_every_one_has_an_answer(options):
    made = tasks.load("programs", **options)
    train, test = made.queries("train"), made.queries("test")
    assert not {q.row["values"] for q in train} & {q.row["values"] for q in test}
    assert not {q.text for q in train} & {q.text for q in test}
    for queries in (train, test):
        assert made.score(queries, said(*(q.row["program"] for q in queries))) == [1.0] * len(queries)
        assert all("x" in q.row["program"] and len(set(q.row["values"])) > 1 for q in queries)
    assert 0.1 < len(test) / (len(train) + len(test)) < 0.3


def test_of_one_sum_and_two_values_the_functions_are_known():
    # x+x and x+1 to x+9, as values for 1 and 2; the same whichever way round they are drawn
    made = tasks.load("programs", operations=1, largest=9, signs="+", examples=2)
    values = {q.row["values"] for split in ("train", "test") for q in made.queries(split)}
    assert values == {(2, 4), *((1 + n, 2 + n) for n in range(1, 10))}


def test_a_function_stays_in_its_split_whatever_the_seed_and_the_difficulty(task):
    ours = {q.text: s for s in ("train", "test") for q in task.queries(s)}
    for options in ({"seed": 1}, {"operations": 4}, {"largest": 5}):
        other = tasks.load("programs", **options)
        theirs = {q.text: s for s in ("train", "test") for q in other.queries(s)}
        shared = ours.keys() & theirs.keys()
        assert len(shared) > 50
        assert all(ours[text] == theirs[text] for text in shared)
    assert ours.keys() != {
        q.text for s in ("train", "test") for q in tasks.load("programs", seed=1).queries(s)
    }


def test_problems_are_the_same_in_every_process(task):
    code = (
        "from cory_env.tasks.programs import Task; print(*(q.text for q in Task().queries('test')), sep=';')"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip().split(";") == [q.text for q in task.queries("test")]


@pytest.mark.parametrize("operations", range(6))
def test_random_expressions_have_so_many_signs_and_mean_in_python_what_they_mean_here(operations):
    rng = np.random.default_rng(operations)
    for _ in range(300):
        text = random_expression(rng, operations, largest=9, signs="+-*")
        assert sum(text.count(sign) for sign in "+-*") == operations
        assert matching(text, [eval(text, {"x": x}) for x in (1, 2, 3)]) == 1


def test_a_hostile_response_costs_one_score_and_no_time(task):
    query = query_of(task, (3, 5, 7))
    hostile = [
        "x+" * 5_000_000,
        "(" * 1_000_000,
        "9" * 10_000,
        "*".join("9" * 99),
        "while True: pass",
        "2*x+1",
    ]
    began = time.perf_counter()
    assert task.score([query] * 6, said(*hostile)) == [0, 0, 0, 0, 0, 1]
    assert time.perf_counter() - began < 3


def test_it_plays(task):
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
        ({"partial": 1.5}, "partial is 1.5; give 0 to 1"),
        ({"partial": float("nan")}, "partial is nan"),
        ({"operations": 1, "largest": 1, "signs": "-"}, "so few functions .* leave none for"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, fault):
    with pytest.raises(ValueError, match=fault):
        tasks.load("programs", **options)
