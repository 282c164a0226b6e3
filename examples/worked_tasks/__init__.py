"""Summaries, a dialogue and code: two seats, a small model, a reward of one's own, minutes on a CPU."""
