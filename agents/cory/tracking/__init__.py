"""Metrics of a run: the tracker, curves, labels, alerts."""
