"""Settings of a run: the schema, flags and YAML, task options, presets."""
