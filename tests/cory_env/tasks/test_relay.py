"""The relay task: its optimum for every payoff, its scores, and its prompts."""

from itertools import product

import numpy as np
import pytest

from cory_env import Query, Response, VectorGame, make_views
from cory_env.payoff import matrix
from cory_env.tasks.relay import LETTERS, Task
from cory_env.tokenizer import CharTokenizer

LAMBDAS = [-5, -1, -0.5, -0.41, -0.39, -0.1, 0, 0.1, 0.19, 0.21, 0.5, 1, 5]
"""On both sides of the corners at -2 price and price, price = 0.2."""

OWN = np.array([[1, 0.8, 0.8, 0.8], [1, 0.8, 0.8, 0.8], [0.8, 0.8, 1, 0.8], [0.8, 0.8, 1, 0.8]])
"""Score of the pioneer by secret and letter."""


def expected_scores(policy_SM):
    """Mean scores of a pioneer that plays m for secret s with policy_SM, and of the best observer."""
    joint_SM = policy_SM / 4
    return (joint_SM * OWN).sum(), joint_SM.max(axis=0).sum()


@pytest.mark.parametrize("others", LAMBDAS)
def test_the_optimum_is_that_of_the_best_deterministic_pioneer(others):
    plays = [expected_scores(np.eye(4)[list(letters)]) for letters in product(range(4), repeat=4)]
    best = max(pioneer + others * observer for pioneer, observer in plays)
    optimum = Task().optimum(others)
    assert optimum.pioneer + others * optimum.observer == pytest.approx(best)


@pytest.mark.parametrize("others", LAMBDAS)
def test_no_random_pioneer_beats_the_optimum(others):
    optimum = Task().optimum(others)
    rng = np.random.default_rng(0)
    for policy_SM in rng.dirichlet([0.3] * 4, size=(2000, 4)):
        pioneer, observer = expected_scores(policy_SM)
        assert pioneer + others * observer <= optimum.pioneer + others * optimum.observer + 1e-9


@pytest.mark.parametrize(
    ("payoff", "name", "pioneer", "observer"),
    [
        ("cooperative", "tells", 0.9, 1.0),
        ("independent", "favours", 1.0, 0.5),
        ("competitive", "hides", 0.9, 0.25),
    ],
)
def test_each_payoff_has_its_own_optimum(payoff, name, pioneer, observer):
    assert Task().optimum(matrix(payoff, 2)[0, 1]) == (name, pytest.approx(pioneer), observer)


@pytest.mark.parametrize(
    ("pioneer", "observer", "scores"),
    [
        (LETTERS, LETTERS, (0.9, 1.0)),  # each secret its letter; the observer repeats it
        ("aacc", "aacc", (1.0, 0.5)),  # always the favourite
        ("aaaa", "aaaa", (0.9, 0.25)),  # always a
    ],
)
def test_the_three_optima_are_attained_in_the_game(pioneer, observer, scores):
    task = Task()
    game = VectorGame(task, max_response=1)
    game.reset(task.queries("test"))
    for seat, letters in zip(game.seats, (pioneer, observer), strict=True):
        prompts = ["".join(map(task.tokenizer.decode, [row])) for row in game.prompts(seat)[0].tolist()]
        assert prompts == (["ad", "bd", "cd", "dd"] if seat == "pioneer_0" else [f"{c}?" for c in pioneer])
        game.respond(seat, np.array([task.tokenizer.encode(c) for c in letters]), np.ones(4, dtype=int))
    assert game.scores().mean(axis=0).tolist() == pytest.approx(scores)


def test_only_a_response_of_one_letter_scores():
    task = Task()
    a, eos, pad = 0, min(task.tokenizer.eos), task.tokenizer.pad
    query = task.queries("train")[0]
    assert query.text == "aa"
    for seat, wrong in [("pioneer_0", 0.8), ("observer_1", 0.0)]:
        every = [(a,), (a, eos), (a, a), (a, pad), (eos,), (pad,)]
        responses = [Response.of(ids, task.tokenizer, seat=seat) for ids in every]
        assert task.score([query] * 6, responses) == [1.0, 1.0, wrong, wrong, wrong, wrong]


def test_an_observer_never_reads_the_query_whatever_it_sees():
    for sees in ("all", "previous", "pioneer", "none"):
        for view in make_views(Task(), seats=4, sees=sees)[1:]:
            assert "{query}" not in view.template


def test_secrets_are_equally_likely_and_splits_differ_by_the_mark():
    task = Task()
    train, validation, test = (
        [query.text for query in task.queries(split)] for split in ("train", "validation", "test")
    )
    assert sorted(train + validation + test) == sorted("".join(pair) for pair in product(LETTERS, repeat=2))
    assert [sum(text[0] == c for text in train) for c in LETTERS] == [2] * 4
    assert validation == ["ac", "bc", "cc", "dc"]
    assert test == ["ad", "bd", "cd", "dd"]
    rng = np.random.default_rng(0)
    assert {task.query(rng).text for _ in range(500)} == set(train)


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match=r"price is 0\.5; between 0 and 0\.5 the optima of all three payoffs differ"
    ):
        Task(price=0.5)
    with pytest.raises(ValueError, match="the tokenizer writes 'a' in 2 tokens; relay needs one"):
        Task(Doubling("abcd?"))
    with pytest.raises(ValueError, match="the response 'a' has no seat"):
        Task().score([Query("aa", (0, 0))], [Response((0,), "a")])


class Doubling(CharTokenizer):
    def encode(self, text):
        return [i for i in super().encode(text) for _ in range(2)]
