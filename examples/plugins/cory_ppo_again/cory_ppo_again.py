"""PPO once more, from outside: where variants start, and what `benchmarks/speed/plugin.py` measures."""

from cory.algorithms.ppo import Config, advantage, token_loss, verdict

__all__ = ["Config", "advantage", "token_loss", "verdict"]
