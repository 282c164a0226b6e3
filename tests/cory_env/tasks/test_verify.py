"""verify: who is right, believed and true, with sums whose answers are written out here."""

import numpy as np
import pytest

from cory_env import VectorGame, raw_env
from cory_env.tasks import base
from cory_env.tasks.arithmetic import Task as Arithmetic
from cory_env.tasks.verify import Task

SUM = "3 + 4"
CASES = [
    # pioneer, observer: the pioneer is right, is believed, the verdict is true
    ("#### 7", "#### 7", 1, 1, 1),
    ("3 + 4 = 7\n#### 7", "the answer is 7.0", 1, 1, 1),
    ("#### 7", "3 + 4 = 8\n#### 8", 1, 0, 0),
    ("#### 9", "#### 9", 0, 1, 0),
    ("#### 9", "#### 7", 0, 0, 1),
    ("#### 9", "#### 5", 0, 0, 1),  # another number says wrong, whichever it is
    ("#### 7", "I do not know", 1, 0, 0),  # no number, no verdict
    ("#### 9", "", 0, 0, 0),
    ("seven", "#### 7", 0, 0, 1),  # no answer is wrong
    ("seven", "seven", 0, 0, 0),
]


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(digits=1, terms=2, signs="+", share=0.25)


def query_of(task):
    return next(query for query in task.queries("train") if query.text == SUM)


def ids_of(task, text):
    return [*task.tokenizer.encode(text), min(task.tokenizer.eos)]


def played(task, rows):
    """A batch with a game for every row of texts."""
    game = VectorGame(task, seats=len(rows[0]), max_response=40, payoff="independent")
    game.reset([query_of(task)] * len(rows))
    for seat, texts in zip(game.seats, zip(*rows, strict=True), strict=True):
        ids = [ids_of(task, text) for text in texts]
        padded = np.zeros((len(ids), max(map(len, ids))), dtype=np.int64)
        for b, row in enumerate(ids):
            padded[b, : len(row)] = row
        game.respond(seat, padded, np.array([len(row) for row in ids]))
    return game


def test_scores_are_truth_and_a_share_for_belief_and_the_truth_of_the_verdict(task):
    game = played(task, [case[:2] for case in CASES])
    assert game.scores().tolist() == [[right + 0.25 * belief, true] for *_, right, belief, true in CASES]
    measured = game.measures()
    assert measured["pioneer_0"]["honesty"].tolist() == [case[2] for case in CASES]
    assert measured["pioneer_0"]["belief"].tolist() == [case[3] for case in CASES]
    assert measured["observer_1"]["accuracy"].tolist() == [case[4] for case in CASES]


@pytest.mark.parametrize(("pioneer", "observer", "right", "belief", "true"), CASES)
def test_the_env_pays_the_same(task, pioneer, observer, right, belief, true):
    env = raw_env(task, max_response=40, payoff="-1")
    env.reset(options={"query": query_of(task)})
    for text in (pioneer, observer):
        for token in ids_of(task, text):
            env.step(token)
    score = right + 0.25 * belief
    assert env.rewards == {"pioneer_0": score - true, "observer_1": true - score}


@pytest.mark.parametrize("lam", [-1.5, -1, 0, 1])
def test_payoffs_are_those_of_the_table(task, lam):
    game = played(
        task, [("#### 7", "#### 7"), ("#### 7", "#### 8"), ("#### 9", "#### 9"), ("#### 9", "#### 7")]
    )
    game.set_payoff(lam)
    s = task.share
    assert game.payoffs().tolist() == [[1 + s + lam, 1 + lam * (1 + s)], [1, lam], [s, lam * s], [lam, 1]]


def test_with_two_observers_the_share_is_of_those_that_believe(task):
    game = played(task, [("#### 9", "#### 9", "#### 7"), ("#### 7", "#### 7", "#### 7")])
    assert game.scores().tolist() == [[0.125, 0, 1], [1.25, 1, 1]]


def test_standalone_every_policy_is_scored_by_its_own_answer(task):
    assert played(task, [("#### 7",), ("#### 9",)]).scores().tolist() == [[1], [0]]
    assert base.correct_from(task) == 1
    assert base.team_only(task) == ""


def test_it_has_the_problems_and_prompts_of_worked_sums(task):
    worked = Arithmetic(digits=1, terms=2, signs="+", worked=True)
    assert [query.row for query in task.queries("test")] == [query.row for query in worked.queries("test")]
    assert [task.template(seat) for seat in ("pioneer_0", "observer_1")] == [
        worked.template(seat) for seat in ("pioneer_0", "observer_1")
    ]


@pytest.mark.parametrize("share", [-0.1, 1, float("nan")])
def test_a_share_as_large_as_being_right_is_refused(share):
    with pytest.raises(ValueError, match=r"share is .*; give a number from 0 to below 1"):
        Task(share=share)
