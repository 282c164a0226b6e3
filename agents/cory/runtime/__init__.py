"""Process runtime: CPU settings, memory budget, signals, clock, provenance."""
