"""relay is learned in seconds, and each payoff leads to its own optimum."""

import pytest

pytest.importorskip("torch")

from cory.config.schema import Config, PolicyConfig
from cory.functional.kl import KLConfig
from cory.learner.optimizer import LearnerConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.trainer import Trainer
from cory_env.tasks.relay import Task

RANDOM = 0.8 + 0.2 / 7 + 1 / 7
"""Sum of both scores under seven equally likely tokens, of which one is the favourite and one the secret."""


def learned_scores(payoff):
    """Mean scores of pioneer and observer over the last 20 of 80 iterations of independent PPO on tables."""
    config = Config.from_flat(
        {
            "task": "relay",
            "payoff": payoff,
            "policy": PolicyConfig(kind="table"),
            "batch": 64,
            "max_response": (1, 1),
            "exchange": ExchangeConfig(every=0),
            "kl": KLConfig(coef=0.0),
            "learner": LearnerConfig(lr=0.1),
        }
    )
    trainer = Trainer(config)
    metrics = [trainer.iterate(iteration) for iteration in range(80)][-20:]
    keys = ("pioneer_0/llm_1/task_reward", "observer_1/llm_2/task_reward")
    return [sum(row[key] for row in metrics) / len(metrics) for key in keys]


@pytest.mark.slow
def test_cooperation_closes_nine_tenths_of_the_gap_from_random():
    best = Task().optimum(1)
    assert sum(learned_scores("cooperative")) > RANDOM + 0.9 * (best.pioneer + best.observer - RANDOM)


@pytest.mark.slow
def test_independence_plays_the_favourite_and_reveals_only_the_pair():
    assert learned_scores("independent") == pytest.approx([1.0, 0.5], abs=0.05)
