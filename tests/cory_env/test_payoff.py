"""Payoff matrices and schedules, with payoffs worked out by hand."""

import numpy as np
import pytest

from cory_env.payoff import Linear, matrix, pay

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
            "no payoff called 'cooperativ'; there are cooperative, independent, competitive, a number",
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
        (lambda: matrix(1.0, 2, iteration=-1), "iteration is -1; give a number from 0"),
    ],
)
def test_a_wrong_schedule_is_refused(make, fault):
    with pytest.raises(ValueError, match=fault):
        make()
