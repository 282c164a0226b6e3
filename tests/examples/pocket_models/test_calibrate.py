"""Accuracy, calibration error and temperature by hand."""

import math

import pytest

from examples.pocket_models.calibrate import accuracy, calibration_error, temperature


def test_accuracy_is_the_share_of_right_signs():
    assert accuracy([2.0, -1.0, 0.5, -3.0], [1, 1, 0, 0]) == 0.5


def test_calibration_error_by_hand():
    # bin of P = .9: four rows, half of them positive: gap .4; bin of P = .2: one row, negative: gap .2
    # (4 * .4 + 1 * .2) / 5 = .36
    log_odds = [math.log(9)] * 4 + [math.log(0.25)]
    assert calibration_error(log_odds, [1, 1, 0, 0, 0]) == pytest.approx(0.36)


def test_calibration_error_of_certainty_that_is_right_is_zero():
    assert calibration_error([50.0, -50.0], [1, 0]) == pytest.approx(0.0)


def test_temperature_makes_the_stated_odds_the_observed_ones():
    # the stated odds are 9 to 1, the observed ones 3 to 1: T = log 9 / log 3 = 2
    log_odds = [math.log(9)] * 4 + [-math.log(9)] * 4
    assert temperature(log_odds, [1, 1, 1, 0, 0, 0, 0, 1]) == pytest.approx(2.0, rel=1e-3)
