"""Examples: scripts, plug-ins, and how the bundled pocket models were made."""
