"""Held-out evaluation: responses, text metrics, intervals, collapse, tables."""
