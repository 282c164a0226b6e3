"""Environments: token-level and turn-level AEC, parallel, single seat, and one-hot observations."""
