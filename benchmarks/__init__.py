"""Benchmarks of CORY: `speed` (throughput, memory) and `learning` (training runs over seeds).

Run as modules from the repository root: `python -m benchmarks.speed.throughput`.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository."""
