"""SuperSuit turns the seats into copies of one environment: one PPO of Stable-Baselines3 plays them all.

    python examples/supersuit_shared.py

Parameter sharing over `parallel_env`. Each seat is paid in the row in which the game ends. Actions of waiting
seats are ignored; PPO has no mask, so those rows are noise in its gradient.
"""

import argparse
from typing import Any

import supersuit
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed

from cory_env import one_hot, parallel_env
from cory_env.tasks.echo import Task

OPTIMUM = 2.0
"""Payoff of both seats if both repeat the one letter of the query."""


def make_env(games: int, *, seed: int) -> Any:
    """`games` games of `echo` at once as a VecEnv: row 2g is game g's pioneer, row 2g + 1 its observer."""
    env = one_hot(parallel_env(Task(length=1), max_response=1))
    seats = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(env), games, base_class="stable_baselines3"
    )
    # SuperSuit copies one env `games` times with its random generator: unseeded, all draw the same queries.
    seats.venv.reset(seed=seed)
    return seats


def make_model(env: Any, *, seed: int) -> PPO:
    """One policy for every seat. `PPO(seed=...)` would call a method `seed` that this VecEnv lacks."""
    set_random_seed(seed)
    return PPO("MlpPolicy", env, n_steps=32, batch_size=128, learning_rate=3e-3, gamma=1.0, device="cpu")


def mean_payoff(model: PPO) -> float:
    """Mean payoff of the pioneer per game in the last rollout."""
    rewards = model.rollout_buffer.rewards[:, ::2]
    return float(rewards.sum() / (rewards.size / 2))


def main() -> None:
    """Train and print the payoff."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="rows of experience, of all seats together")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = make_model(make_env(8, seed=args.seed), seed=args.seed)
    model.learn(args.steps)
    print(f"payoff of the pioneer: {mean_payoff(model):.2f} of {OPTIMUM}")


if __name__ == "__main__":
    main()
