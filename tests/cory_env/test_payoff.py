import numpy as np
import pytest

from cory_env.payoff import matrix, pay

SCORES = np.array([[3.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("kind", "paid"),
    [
        ("cooperative", [4.0, 4.0, 4.0]),
        ("independent", [3.0, 1.0, 0.0]),
        ("competitive", [3 - 0.5, 1 - 1.5, 0 - 2.0]),  # own less the mean of the other two
        (1.0, [4.0, 4.0, 4.0]),
        (-1, [2.0, -2.0, -4.0]),  # own less the sum of the other two
        ("-1", [2.0, -2.0, -4.0]),
        (0.5, [3.5, 2.5, 2.0]),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [1.0, 0.0, 3.0]),  # each is paid what the next one scored
    ],
)
def test_three_seats_by_hand(kind, paid):
    assert pay(matrix(kind, 3), SCORES).tolist() == [paid]


def test_one_seat_is_paid_its_score():
    assert matrix("cooperative", 1).tolist() == matrix("independent", 1).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("kind", "seats", "fault"),
    [
        ("competitive", 1, "'competitive' needs a rival"),
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
