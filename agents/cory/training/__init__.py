"""A training run: factory, trainer, loop, checkpoints, resume."""
