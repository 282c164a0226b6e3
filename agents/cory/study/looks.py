"""Looks at a study before its last seed: O'Brien-Fleming bounds, which leave 5 % for all looks together.

Imports no run and no file. Shapes: K looks, G points of a grid.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from scipy import optimize, stats

from cory.study.statistics import LEVEL

LOOKS = (5, 10, 20)
"""Numbers of seeds at which a study may be looked at and continued."""
GRID = 801
"""Odd number of points of the integrals (Simpson's rule)."""


def p_bound(seeds: int) -> float:
    """The nominal p below which a comparison is significant at a look at `seeds` seeds; NaN at other numbers.

    With these bounds a study that is looked at after 5, 10 and 20 seeds finds a difference where there is
    none with a probability of 5 % in all.
    """
    if seeds not in LOOKS:
        return math.nan
    bound = obrien_fleming([look / LOOKS[-1] for look in LOOKS])[LOOKS.index(seeds)]
    return float(2 * stats.norm.sf(bound))


def obrien_fleming(fractions: Sequence[float], *, level: float = LEVEL) -> list[float]:
    """Two-sided bounds of |z| at each look: c / sqrt(fraction) (O'Brien and Fleming 1979).

    `fractions` are the shares of all observations at each look, ascending, the last one 1. c is such that a
    statistic without a difference crosses any bound with probability `level`. ValueError for other fractions.
    """
    found = tuple(float(one) for one in fractions)
    if not found or found[-1] != 1 or list(found) != sorted(set(found)) or found[0] <= 0:
        raise ValueError(
            f"the fractions of the looks are {list(found)}; give ascending ones above 0, the last one 1"
        )
    return [_constant(found, level) / math.sqrt(t) for t in found]


@cache
def _constant(fractions: tuple[float, ...], level: float) -> float:
    """The c of O'Brien and Fleming's bounds."""
    lowest, highest = (stats.norm.isf(level / 2 / looks) for looks in (1, len(fractions)))  # Bonferroni's
    return float(optimize.brentq(lambda c: crossing(fractions, c) - level, lowest - 0.01, highest + 0.01))


def crossing(fractions: Sequence[float], c: float) -> float:
    """Probability that z(t) of a Brownian motion crosses c / sqrt(t) in size at any look t.

    The motion sqrt(t) z(t) has independent normal increments; its density inside of the bounds, which are -c
    and c at every look, is integrated from look to look (Armitage, McPherson and Rowe 1969).
    """
    x_G, weight_G = np.linspace(-c, c, GRID), _simpson(2 * c)
    density_G = stats.norm.pdf(x_G, scale=math.sqrt(fractions[0]))
    for before, now in pairwise(fractions):
        step_GG = stats.norm.pdf(x_G[:, None] - x_G[None, :], scale=math.sqrt(now - before))
        density_G = step_GG @ (weight_G * density_G)
    return 1 - float(weight_G @ density_G)


def _simpson(width: float) -> np.ndarray:
    """Weights of Simpson's rule over an interval."""
    weight_G = np.full(GRID, 2.0)
    weight_G[1::2] = 4.0
    weight_G[[0, -1]] = 1.0
    weights: np.ndarray = weight_G * width / (GRID - 1) / 3
    return weights
