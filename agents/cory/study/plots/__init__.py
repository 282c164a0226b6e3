"""Figures of a study."""

from cory.study.plots.figures import draw

__all__ = ["draw"]
