"""Benchmarks of CORY: `speed` (throughput, memory) and `learning` (training runs with seeds)."""
