"""CORY as a game: seats respond in turn to one query, token by token. `env()` makes a PettingZoo env."""

from cory_env.cory_v0 import env, one_hot, parallel_env, raw_env, seat_env, turn_env
from cory_env.game import Game
from cory_env.types import Query, Response, seat_names
from cory_env.vector import VectorGame
from cory_env.views import View, make_views

__all__ = [
    "Game",
    "Query",
    "Response",
    "VectorGame",
    "View",
    "env",
    "make_views",
    "one_hot",
    "parallel_env",
    "raw_env",
    "seat_env",
    "seat_names",
    "turn_env",
]
