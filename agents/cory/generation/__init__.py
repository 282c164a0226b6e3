"""Batched sampling and sampling strategies."""
