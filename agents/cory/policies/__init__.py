"""Kinds of policies: `table` for tests, `causal_lm` and `lora` for Hugging Face models."""
