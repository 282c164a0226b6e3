"""Payoff matrices and schedules, with payoffs worked out by hand."""

import numpy as np
import pytest

from cory_env import payoff
from cory_env.payoff import Linear, matrix, pay, rule

SCORES = np.array([[3.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("kind", "payoffs"),
    [
        ("cooperative", [4.0, 4.0, 4.0]),
        ("independent", [3.0, 1.0, 0.0]),
        ("competitive", [3 - 0.5, 1 - 1.5, 0 - 2.0]),  # own minus the mean of the other two
        (1.0, [4.0, 4.0, 4.0]),
        (-1, [2.0, -2.0, -4.0]),  # own minus the sum of the other two
        ("-1", [2.0, -2.0, -4.0]),
        (0.5, [3.5, 2.5, 2.0]),
        (np.float32(0.5), [3.5, 2.5, 2.0]),
        (np.int64(1), [4.0, 4.0, 4.0]),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [1.0, 0.0, 3.0]),  # each is paid the score of the next one
    ],
)
def test_three_seats_by_hand(kind, payoffs):
    assert pay(matrix(kind, 3), SCORES).tolist() == [payoffs]


def test_one_seat_is_paid_its_score():
    assert matrix("cooperative", 1).tolist() == matrix("independent", 1).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("kind", "seats", "fault"),
    [
        ("competitive", 1, "'competitive' needs another seat"),
        (
            "cooperativ",
            2,
            "no payoff called 'cooperativ'; there are cooperative, independent, .*, best, difference, shuff",
        ),
        ([[1, 0]], 2, r"has shape \(1, 2\); 2 seats need \(2, 2\)"),
        ([1, 2], 2, r"has shape \(2,\); 2 seats need"),
        ([[1, 2], [3]], 2, "is not a matrix of numbers"),
        (float("nan"), 2, "every entry must be a finite number"),
        ("inf", 2, "every entry must be a finite number"),
        ([[1, float("inf")], [0, 1]], 2, "every entry must be a finite number"),
    ],
)
def test_a_wrong_payoff_is_refused(kind, seats, fault):
    with pytest.raises(ValueError, match=fault):
        matrix(kind, seats)


def test_the_callers_matrix_is_not_aliased():
    own = np.eye(2)
    W = matrix(own, 2)
    own[0, 0] = 9
    assert W.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(("iteration", "payoff"), [(0, 2.0), (1, 2.5), (2, 3.0), (4, 4.0), (99, 4.0)])
def test_a_schedule_goes_linearly_from_one_lambda_to_another_and_stays(iteration, payoff):
    W = matrix(Linear(-1, 1, iterations=4), 2, iteration=iteration)
    # scores 3 and 1: the first seat is paid 3 + lambda, lambda = -1, -.5, 0, ..., 1
    assert pay(W, np.array([[3.0, 1.0]]))[0, 0] == payoff


def test_a_schedule_may_lead_from_any_mix_to_any_other():
    W = matrix(Linear("competitive", [[2, 1, 0]] * 3, iterations=2), 3, iteration=1)
    assert W[0].tolist() == [1.5, 0.25, -0.25]  # halfway between 1, -1/2, -1/2 and 2, 1, 0


def test_a_payoff_without_a_schedule_is_constant():
    assert matrix("cooperative", 2, iteration=7).tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Linear(0, 1, iterations=0), "iterations is 0; a payoff needs 1 or more"),
        (lambda: matrix(Linear(0, "all", iterations=3), 2), "no payoff called 'all'"),
        (lambda: matrix(Linear("best", 0, iterations=3), 2), "'best' is a function of the scores; schedules"),
        (lambda: matrix(1.0, 2, iteration=-1), "iteration is -1; give a number from 0"),
    ],
)
def test_a_wrong_schedule_is_refused(make, fault):
    with pytest.raises(ValueError, match=fault):
        make()


@pytest.mark.parametrize(
    ("name", "payoffs"),
    [
        ("best", [[3.0, 3.0, 3.0], [2.0, 2.0, 2.0]]),
        ("difference", [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),  # the second game's best is there twice
    ],
)
def test_payoffs_of_the_best_score_by_hand(name, payoffs):
    assert rule(name, 3)(np.array([[3.0, 1.0, 0.0], [2.0, 2.0, 1.0]])).tolist() == payoffs


def test_shuffled_pays_the_others_of_one_other_game_drawn_anew_each_iteration():
    scores_BN = np.array([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [4.0, 40.0, 400.0], [8.0, 80.0, 800.0]])
    draws = set()
    for iteration in range(40):
        others_BN = rule("shuffled", 3, iteration=iteration)(scores_BN) - scores_BN
        sources = [
            int(np.flatnonzero(scores_BN[:, 1] + scores_BN[:, 2] == seat_0)[0]) for seat_0 in others_BN[:, 0]
        ]
        assert sorted(sources) == [0, 1, 2, 3]
        assert all(source != b for b, source in enumerate(sources))
        assert others_BN.tolist() == [
            [b + c, a + c, a + b] for a, b, c in (scores_BN[source].tolist() for source in sources)
        ]
        draws.add(tuple(sources))
    assert len(draws) == 6  # the cycles through four games
    assert np.array_equal(*(rule("shuffled", 3, iteration=7)(scores_BN) for _ in range(2)))


def test_shuffled_has_the_sum_of_the_batch_and_none_of_the_covariance_within_a_game():
    score_B = np.random.default_rng(0).normal(size=4000)
    scores_BN = np.stack([score_B, score_B], axis=1)  # the second seat repeats the first
    summed_BN, shuffled_BN = (rule(name, 2)(scores_BN) for name in ("cooperative", "shuffled"))
    assert shuffled_BN.sum() == pytest.approx(summed_BN.sum())
    assert summed_BN[:, 0].var() == pytest.approx(4 * score_B.var())
    assert shuffled_BN[:, 0].var() == pytest.approx(2 * score_B.var(), rel=0.1)


def test_shuffled_needs_another_game():
    with pytest.raises(ValueError, match="there is one game only; give a batch of 2 or more"):
        rule("shuffled", 2)(np.array([[1.0, 2.0]]))


def test_one_seat_adds_its_score_and_scores_may_be_negative():
    assert rule("difference", 1)(np.array([[3.0], [-2.0]])).tolist() == [[3.0], [-2.0]]
    scores_BN = np.array([[-1.0, -3.0], [-3.0, 1.0]])  # without the better one, -3 is left
    assert rule("difference", 2)(scores_BN).tolist() == [[2.0, 0.0], [0.0, 4.0]]


def product(scores_BN: np.ndarray, iteration: int) -> np.ndarray:
    return np.full_like(scores_BN, iteration) * scores_BN.prod(1, keepdims=True)


def test_any_function_of_scores_and_iteration_pays():
    scores = np.array([[2.0, 3.0]])
    assert rule(product, 2, iteration=4)(scores).tolist() == [[24.0, 24.0]]
    assert rule(f"{__name__}:product", 2, iteration=1)(scores).tolist() == [[6.0, 6.0]]


def test_a_registered_payoff_has_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr(payoff.REGISTRY, "items", dict(payoff.REGISTRY.items))
    payoff.REGISTRY.register("product", product)
    assert rule("product", 2, iteration=2)(np.array([[1.0, 1.0]])).tolist() == [[2.0, 2.0]]
    with pytest.raises(ValueError, match="there is a payoff 'best' already"):
        payoff.REGISTRY.register("best", product)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda scores_BN, _: scores_BN[:, :1], r"returned shape \(1, 1\) for scores of shape \(1, 2\)"),
        (lambda scores_BN, _: scores_BN / 0, "not finite"),
        (
            lambda _scores, _: [["much", "little"]],
            r"<lambda>.* returned .*'much'.*; return a number for every",
        ),
        (lambda _scores, _: [[1.0], [1.0, 2.0]], r"returned \[\[1.0\], \[1.0, 2.0\]\]; return a number"),
        (f"{__name__}:absent", "cannot be imported"),
        ("no_such_module:function", "cannot be imported"),
        (f"{__name__}:SCORES", "SCORES' is a ndarray, not a function"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_function_that_cannot_pay_is_refused(function, fault):
    with pytest.raises(ValueError, match=fault):
        rule(function, 2)(np.array([[1.0, 1.0]]))


def test_a_function_cannot_change_the_scores():
    def spoil(scores_BN: np.ndarray, _iteration: int) -> np.ndarray:
        scores_BN[:] = 9
        return scores_BN

    scores = np.array([[1.0, 1.0]])
    rule(spoil, 2)(scores)
    assert scores.tolist() == [[1.0, 1.0]]


def test_a_function_in_a_file_pays(tmp_path):
    path = tmp_path / "my_payoffs.py"
    path.write_text("def rising(scores, iteration):\n    return scores * iteration\n\nSCORES = 1\n")
    assert rule(f"{path}:rising", 2, iteration=3)(np.array([[2.0, 1.0]])).tolist() == [[6.0, 3.0]]
    for name, fault in {
        f"{path}:absent": "cannot be imported",
        f"{tmp_path}/gone.py:rising": "cannot be imported .*gone.py",
        f"{path}:SCORES": "is a int, not a function",
    }.items():
        with pytest.raises(ValueError, match=fault):
            rule(name, 2)
    with pytest.raises(ValueError, match="rising' is a function of the scores; schedules go from one matrix"):
        matrix(Linear(f"{path}:rising", 1, iterations=3), 2)
