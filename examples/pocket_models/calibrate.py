"""Accuracy and calibration of a judge's log-odds, and the temperature that calibrates them."""

from collections.abc import Sequence

import numpy as np


def accuracy(log_odds: Sequence[float], labels: Sequence[int]) -> float:
    """Share of rows whose sign agrees with the label (1 positive, 0 negative)."""
    return float(np.mean((np.asarray(log_odds) > 0) == np.asarray(labels, bool)))


def calibration_error(log_odds: Sequence[float], labels: Sequence[int], *, bins: int = 15) -> float:
    """Expected calibration error of P(positive): mean over rows of their bin's |mean P - share positive|."""
    probability = 1 / (1 + np.exp(-np.asarray(log_odds, float)))
    which = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = np.bincount(which, weights=probability - np.asarray(labels, float), minlength=bins)
    return float(np.abs(gaps).sum() / len(probability))


def temperature(log_odds: Sequence[float], labels: Sequence[int]) -> float:
    """The T > 0 for which log_odds / T has the highest likelihood (arXiv:1706.04599, section 4.2)."""
    from scipy.optimize import minimize_scalar

    signed = np.where(np.asarray(labels, bool), log_odds, -np.asarray(log_odds, float))
    found = minimize_scalar(
        lambda t: np.logaddexp(0, -signed / np.exp(t)).mean(), bounds=(-4, 4), method="bounded"
    )
    return float(np.exp(found.x))
