"""The command line: train, evaluate, play, report."""

from cory.cli.main import main

__all__ = ["main"]
