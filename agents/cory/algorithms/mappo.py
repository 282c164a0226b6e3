"""MAPPO (arXiv:2103.01955): PPO for every seat, with advantages from one critic that sees the whole game.

The values in the batches are those of the central critic (`cory.learner.central_critic`), which reads every
response so far, also those that a seat's own view hides. It is made because `needs` asks for it: with this
algorithm `critic.kind` is `central`. All else is PPO: advantages are GAE per seat, and the critic learns
their returns in epochs of its own (`critic.epochs`, `critic.lr`), on frozen hidden states. The value
normalisation of the paper is left out.
"""

from cory.algorithms.base import Requirements
from cory.algorithms.ppo import Config, advantage, token_loss, verdict

__all__ = ["Config", "advantage", "needs", "token_loss", "verdict"]


def needs(config: Config) -> Requirements:
    """Require the central critic."""
    return Requirements(critic="central")
