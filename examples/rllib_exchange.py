"""Two policies in RLlib that change seats: `policy_mapping_fn` maps agents by CORY's `seating_at`.

    sh examples/setup_rllib.sh                          # once: RLlib has a virtual environment of its own
    .venv-rllib/bin/python examples/rllib_exchange.py

Each policy learns `echo` from both seats. RLlib's PettingZooEnv visits every seat once more when the game
is over, so the pioneer's last row carries its payoff under the default `payout="end"`.
"""

import argparse
from collections.abc import Callable
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.pettingzoo_env import PettingZooEnv
from ray.tune.registry import register_env

from cory.rollout.role_exchange import seating_at
from cory_env import env as token_env
from cory_env import one_hot, seat_names
from cory_env.tasks.echo import Task

SEATS = seat_names(2)
POLICIES = ("llm_1", "llm_2")
OPTIMUM = 2.0
"""Payoff of both seats if both repeat the one letter of the query."""


def make_env(_: Any = None) -> PettingZooEnv:
    """The task `echo` with queries of one letter."""
    return PettingZooEnv(one_hot(token_env(Task(length=1), max_response=1)))


def mapping_at(iteration: int, *, every: int) -> Callable[..., str]:
    """RLlib's `policy_mapping_fn` for the seating of `iteration`."""
    seating = seating_at(iteration, every=every, seats=SEATS, first=POLICIES)
    return lambda agent_id, *_, **__: seating[agent_id]


def seat(algorithm: Algorithm, iteration: int, *, every: int) -> None:
    """Play every game that starts from now on in the seating of `iteration`.

    One game has started already: RLlib resets the env in the step that ends the last game.
    """

    def take_seats(runner: Any) -> None:
        runner.config = runner.config.copy(copy_frozen=False)
        runner.config.multi_agent(policy_mapping_fn=mapping_at(iteration, every=every))

    algorithm.env_runner_group.foreach_env_runner(take_seats)


def make_algorithm(*, seed: int, every: int) -> Algorithm:
    """PPO for both policies, in this process."""
    register_env("cory_echo", make_env)
    config = (
        PPOConfig()
        .environment("cory_echo")
        # Not batch_mode="complete_episodes": it resets with the same seed, so to the same query, each time.
        .env_runners(num_env_runners=0, batch_mode="truncate_episodes")
        .multi_agent(policies=set(POLICIES), policy_mapping_fn=mapping_at(0, every=every))
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="tanh"))
        .training(train_batch_size_per_learner=256, num_epochs=8, lr=1e-2, gamma=1.0)
        .debugging(seed=seed, log_level="ERROR")
    )
    return config.build_algo()


def play(algorithm: Algorithm, games: int) -> list[Any]:
    """Episodes of `games` games with the current policies; a game is two steps."""
    return algorithm.env_runner.sample(num_timesteps=2 * games)


def payoff(algorithm: Algorithm, *, games: int = 64) -> float:
    """Mean payoff of the pioneer's seat."""
    return sum(game.agent_episodes["pioneer_0"].get_return() for game in play(algorithm, games)) / games


def main() -> None:
    """Train, exchange seats, and print the payoff of each iteration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--every", type=int, default=3, help="iterations between exchanges; 0 = never")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    algorithm = make_algorithm(seed=args.seed, every=args.every)
    for iteration in range(args.iterations):
        seat(algorithm, iteration, every=args.every)
        algorithm.train()
        pioneer = mapping_at(iteration, every=args.every)("pioneer_0")
        print(f"iteration {iteration}: {pioneer} is the pioneer, payoff {payoff(algorithm):.2f} of {OPTIMUM}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
