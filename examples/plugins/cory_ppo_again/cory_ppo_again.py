"""PPO as a plug-in: a start for variants."""

from cory.algorithms.ppo import Config, advantage, token_loss, verdict

__all__ = ["Config", "advantage", "token_loss", "verdict"]
