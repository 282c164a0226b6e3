"""Training runs over seeds and settings, and their tables."""
