"""Batched sampling and sampling strategies."""

from typing import Literal

SamplingStrategy = Literal["own", "paper", "greedy"]
"""`own`: the policy's own distribution. `paper`: repetition penalty 1.1, then top-k 10, then top-p 0.7.
`greedy`: always the most likely token."""
