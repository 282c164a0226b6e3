"""The game under its versioned name, and in PettingZoo's registry: `make("aec", "cory/token-v0")`."""

from pettingzoo import aec_registry, register

from cory_env.env import env, raw_env

__all__ = ["env", "raw_env"]

if "cory/token-v0" not in aec_registry:
    register("aec", "cory/token-v0", "cory_env.cory_v0:env")
