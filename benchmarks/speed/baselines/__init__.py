"""The same workloads in other libraries and in plain Hugging Face code."""
