"""Metrics of passes over parts of a batch, and of the parts together."""

from collections.abc import Sequence
from typing import NamedTuple


class PartMetrics(NamedTuple):
    """Metrics of one pass, and what is needed to combine them with others."""

    means: dict[str, float]
    maxima: dict[str, float]
    tokens: int


def merge(parts: Sequence[PartMetrics]) -> PartMetrics:
    """Means over the tokens of all parts, and the largest maxima: the same however a batch was split."""
    if len(parts) == 1:
        return parts[0]
    tokens = sum(part.tokens for part in parts)
    means = {name: sum(part.means[name] * part.tokens for part in parts) / tokens for name in parts[0].means}
    maxima = {name: max(part.maxima[name] for part in parts) for name in parts[0].maxima}
    return PartMetrics(means, maxima, tokens)


def combine(parts: Sequence[PartMetrics]) -> dict[str, float]:
    """The metrics of all parts together."""
    whole = merge(parts)
    return whole.means | whole.maxima
