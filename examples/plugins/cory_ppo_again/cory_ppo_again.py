"""PPO once more, from outside: where variants start, and what `benchmarks/plugin_speed.py` measures."""

from agents.algorithms.ppo import Config, advantage, token_loss, verdict

__all__ = ["Config", "advantage", "token_loss", "verdict"]
