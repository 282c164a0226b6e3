"""Bounds of looks at a study, against published tables and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from cory.study import looks


@pytest.mark.parametrize(
    ("number", "last"), [(1, 1.960), (2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040), (10, 2.087)]
)
def test_last_bound_of_equal_looks_is_that_of_the_tables(number, last):
    """Jennison and Turnbull 2000, table 2.3, for 5 % two-sided."""
    found = looks.obrien_fleming([(i + 1) / number for i in range(number)])
    assert found[-1] == pytest.approx(last, abs=0.0015)


def test_bounds_of_earlier_looks_are_stricter():
    assert looks.obrien_fleming([0.5, 1]) == pytest.approx([2.797, 1.977], abs=0.001)
    assert looks.obrien_fleming([1 / 3, 2 / 3, 1]) == pytest.approx([3.471, 2.454, 2.004], abs=0.001)


def test_bounds_at_one_per_cent():
    """The same table for 1 % two-sided, two looks: 2.580."""
    assert looks.obrien_fleming([0.5, 1], level=0.01)[-1] == pytest.approx(2.580, abs=0.001)


def test_bounds_at_5_10_and_20_seeds():
    assert looks.p_bound(5) == pytest.approx(0.0001, abs=0.00003)
    assert looks.p_bound(10) == pytest.approx(0.0052, abs=0.0001)
    assert looks.p_bound(20) == pytest.approx(0.048, abs=0.0002)


@pytest.mark.parametrize("seeds", [0, 4, 7, 21])
def test_other_numbers_of_seeds_are_no_looks(seeds):
    assert math.isnan(looks.p_bound(seeds))


def test_looks_find_a_difference_where_there_is_none_in_five_per_cent():
    sums = np.random.default_rng(0).normal(size=(40_000, 20)).cumsum(1)
    crossed = np.zeros(len(sums), bool)
    for seeds in looks.LOOKS:
        z = np.abs(sums[:, seeds - 1]) / math.sqrt(seeds)
        crossed |= z > stats.norm.isf(looks.p_bound(seeds) / 2)
    assert crossed.mean() == pytest.approx(0.05, abs=0.004)


@pytest.mark.parametrize("fractions", [[], [0.5], [0.5, 0.5, 1], [0.7, 0.3, 1], [0, 1], [0.5, 1.5]])
def test_fractions_that_are_no_looks_are_refused(fractions):
    with pytest.raises(ValueError, match="give ascending ones above 0"):
        looks.obrien_fleming(fractions)
