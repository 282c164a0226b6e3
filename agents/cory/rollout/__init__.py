"""Rollouts: specification of a batch of games, playing it, role exchange."""
