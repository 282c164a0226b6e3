"""Throughput and memory, measured beside baselines."""
