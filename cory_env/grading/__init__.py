"""Grading: numeric answers, expressions, and reward functions of users."""
