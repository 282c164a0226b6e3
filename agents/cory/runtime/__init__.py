"""The process: CPU settings, signals, clock."""
