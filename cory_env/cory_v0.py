"""The environments under their versioned names, registered with PettingZoo and Gymnasium.

Ids: `cory/token-v0` (aec and parallel) and `cory/turn-v0` (aec) for `pettingzoo.make`, `cory/Seat-v0` for
`gymnasium.make`; each takes a `task`, by default `echo`.
"""

import gymnasium
from pettingzoo import aec_registry, parallel_registry, register

from cory_env.envs.one_hot import one_hot
from cory_env.envs.parallel import parallel_env
from cory_env.envs.seat import seat_env
from cory_env.envs.token import env, raw_env
from cory_env.envs.turn import env as turn_env

__all__ = ["env", "one_hot", "parallel_env", "raw_env", "seat_env", "turn_env"]

if "cory/token-v0" not in aec_registry:
    register("aec", "cory/token-v0", "cory_env.envs.token:env")
if "cory/turn-v0" not in aec_registry:
    register("aec", "cory/turn-v0", "cory_env.envs.turn:env")
if "cory/token-v0" not in parallel_registry:
    register("parallel", "cory/token-v0", "cory_env.envs.parallel:parallel_env")
if "cory/Seat-v0" not in gymnasium.registry:
    gymnasium.register("cory/Seat-v0", "cory_env.envs.seat:seat_env")
