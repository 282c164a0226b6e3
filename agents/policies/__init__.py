"""Kinds of policies, one file each: `table` for tests, `causal_lm` for Hugging Face models."""
