"""Benchmarks of CORY: speed and memory, architectures, and the pages of the studies.

Run as modules from the repository root: `python -m benchmarks.speed.throughput`.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository."""
