"""CORY: sequential multi-agent reinforcement learning of LLMs, the players and their training.

The game itself is the package `cory_env`.
"""

__version__ = "0.2.0"
