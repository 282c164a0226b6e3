"""Rewards in the rows that each seat learns from in Tianshou, under both payouts of the env.

    python examples/tianshou_rows.py

Tianshou gives a seat the rows in which it acted, with the rewards of that step (tianshou#399, #900). Payoffs
exist only after the last response: with `payout="end"` the pioneer learns from zeros; with `payout="settle"`
it acts once more, and that row carries its payoff.
"""

import argparse
from typing import Any

from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv

from cory_env import env as token_env
from cory_env import one_hot


def make_env(payout: str) -> PettingZooEnv:
    """The task `relay` with action masks in the observations, where Tianshou reads them."""
    env = one_hot(token_env("relay", max_response=1, payout=payout, action_mask="obs"))
    return PettingZooEnv(env)


def collect(payout: str, *, games: int, seed: int = 0) -> Batch:
    """The rows of `games` games between random policies, in the order of play."""
    env = make_env(payout)
    env.action_space.seed(seed)
    policies = [MARLRandomDiscreteMaskedOffPolicyAlgorithm(action_space=env.action_space) for _ in env.agents]
    algorithm = MultiAgentOffPolicyAlgorithm(algorithms=policies, env=env)
    games_at_once = DummyVectorEnv([lambda: make_env(payout)])
    buffer = VectorReplayBuffer(total_size=3 * games, buffer_num=1)
    collector = Collector(algorithm, games_at_once, buffer)
    collector.reset(gym_reset_kwargs={"seed": seed})
    collector.collect(n_episode=games)
    return buffer[:]


def rewards_of(batch: Any, seat: int) -> list[float]:
    """Rewards in the rows of a seat, which are all that its algorithm receives."""
    own = batch.obs.agent_id == make_env("end").agents[seat]
    return batch.rew[own, seat].tolist()


def main() -> None:
    """Print the pioneer's rows under both payouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--games", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for payout in ("end", "settle"):
        batch = collect(payout, games=args.games, seed=args.seed)
        print(f"{payout:>6}: all rewards {batch.rew.sum(axis=0).round(2)}, "
              f"in the pioneer's rows {sum(rewards_of(batch, 0)):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
