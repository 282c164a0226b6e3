"""One seat of the game as a Gymnasium environment: PPO of Stable-Baselines3 learns to repeat the query.

    python examples/sb3_seat.py
    python examples/sb3_seat.py --algorithm maskable_ppo --seed 1

The partner in the other seat repeats the pioneer's response, so that under the cooperative payoff every
letter the learner gets right is paid twice. MaskablePPO (sb3-contrib) reads the seat's action masks.
"""

import argparse
from typing import Any

import numpy as np

from cory_env import one_hot, seat_env
from cory_env.tasks import load

TASK = load("echo")

LENGTH = TASK.max_query
"""Tokens of a query and of every response."""

OPTIMUM = 2.0
"""Payoff of the best pioneer: 1 for its own response and 1 for the copy."""


def copycat(prompt: tuple[int, ...], cap: int, rng: np.random.Generator) -> list[int]:
    """Repeat the pioneer's response: the end of the observer's prompt, after the query."""
    return [*prompt[LENGTH:], min(TASK.tokenizer.eos)][:cap]


def make_env() -> Any:
    """The pioneer's seat in `echo`, its observations one-hot."""
    return one_hot(seat_env("pioneer_0", TASK, partners=copycat, max_response=LENGTH))


def make_model(algorithm: str, env: Any, *, seed: int) -> Any:
    """`ppo` or `maskable_ppo`, sized for a vocabulary of eight and games of three tokens."""
    if algorithm == "maskable_ppo":
        import sb3_contrib

        kind = sb3_contrib.MaskablePPO
    else:
        import stable_baselines3

        kind = stable_baselines3.PPO
    return kind(
        "MlpPolicy", env, n_steps=512, batch_size=128, learning_rate=1e-3, gamma=1.0, seed=seed, device="cpu"
    )


def mean_payoff(model: Any, *, games: int = 200, seed: int = 1000) -> float:
    """Mean payoff per game of the sampling model; before training, that of random play."""
    env, total = make_env(), 0.0
    observation, _ = env.reset(seed=seed)
    for _ in range(games):
        over = False
        while not over:
            action, _ = model.predict(observation)
            observation, reward, over, _, _ = env.step(int(action))
            total += float(reward)
        observation, _ = env.reset()
    return total / games


def train(algorithm: str, *, seed: int, steps: int) -> tuple[float, float]:
    """Mean payoff before and after `steps` tokens of experience."""
    model = make_model(algorithm, make_env(), seed=seed)
    before = mean_payoff(model)
    model.learn(steps)
    return before, mean_payoff(model)


def main() -> None:
    """Train, and print the share of the gap between random and best play that was closed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--algorithm", choices=("ppo", "maskable_ppo"), default="ppo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000, help="tokens of experience")
    args = parser.parse_args()
    before, after = train(args.algorithm, seed=args.seed, steps=args.steps)
    closed = (after - before) / (OPTIMUM - before)
    print(f"payoff {before:.2f} before, {after:.2f} after, {OPTIMUM} at best: {closed:.0%} of the gap closed")


if __name__ == "__main__":
    main()
