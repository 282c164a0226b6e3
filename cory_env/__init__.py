"""CORY as a game: two or more seats respond to one query, token by token."""

from cory_env.game import Game, Query, Response, seat_names
from cory_env.vector import VectorGame
from cory_env.views import View, make_views

__all__ = ["Game", "Query", "Response", "VectorGame", "View", "make_views", "seat_names"]
