"""Every view of the game under versioned names, and in the registries of PettingZoo and Gymnasium.

Ids: `cory/token-v0` (aec and parallel) and `cory/turn-v0` (aec) for `pettingzoo.make`, `cory/Seat-v0` for
`gymnasium.make`; each takes a `task`, by default `echo`.
"""

import gymnasium
from pettingzoo import aec_registry, parallel_registry, register

from cory_env.env import env, raw_env
from cory_env.one_hot import one_hot
from cory_env.parallel import parallel_env
from cory_env.seat import seat_env
from cory_env.turns import env as turn_env

__all__ = ["env", "one_hot", "parallel_env", "raw_env", "seat_env", "turn_env"]

if "cory/token-v0" not in aec_registry:
    register("aec", "cory/token-v0", "cory_env.env:env")
if "cory/turn-v0" not in aec_registry:
    register("aec", "cory/turn-v0", "cory_env.turns:env")
if "cory/token-v0" not in parallel_registry:
    register("parallel", "cory/token-v0", "cory_env.parallel:parallel_env")
if "cory/Seat-v0" not in gymnasium.registry:
    gymnasium.register("cory/Seat-v0", "cory_env.seat:SeatEnv")
