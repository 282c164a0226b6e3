"""relay is small enough to be learned in seconds, and then each way to be paid shows."""

import pytest

pytest.importorskip("torch")

from agents.config import Config, PolicyConfig
from agents.exchange import Config as ExchangeConfig
from agents.kl import Config as KLConfig
from agents.optimizer import Config as LearnerConfig
from agents.trainer import Trainer
from cory_env.tasks.relay import Task

RANDOM = 0.8 + 0.2 / 7 + 1 / 7
"""Together, by seven equally likely tokens: one is the favourite, one is the secret."""


def learned(payoff):
    """What pioneer and observer score over the last 20 of 80 iterations of independent PPO on tables."""
    config = Config(
        task="relay",
        payoff=payoff,
        policy=PolicyConfig(kind="table"),
        batch=64,
        max_response=(1, 1),
        exchange=ExchangeConfig(every=0),
        kl=KLConfig(coef=0.0),
        learner=LearnerConfig(lr=0.1),
    )
    trainer = Trainer(config)
    told = [trainer.iterate(iteration) for iteration in range(80)][-20:]
    both = ("pioneer_0/llm_1/task_reward", "observer_1/llm_2/task_reward")
    return [sum(row[key] for row in told) / len(told) for key in both]


def test_cooperation_closes_nine_tenths_of_the_gap_from_random():
    best = Task().optimum(1)
    assert sum(learned("cooperative")) > RANDOM + 0.9 * (best.pioneer + best.observer - RANDOM)


def test_independence_favours_and_tells_the_pair_only():
    assert learned("independent") == pytest.approx([1.0, 0.5], abs=0.05)
