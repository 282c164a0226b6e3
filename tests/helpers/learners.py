"""Learners of tiny policies, their advantages and the gradients they use."""

from dataclasses import fields

import torch

from cory import algorithms
from cory.algorithms import ppo
from cory.batch import Batch
from cory.functional import kl, token_rewards
from cory.functional.advantage import Advantage
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.base import Policy


def make_learner(policy: Policy, *, epochs: int = 1, **options) -> Learner:
    """A PPO learner of one epoch; `options` are those of `LearnerConfig`."""
    return Learner(
        policy,
        algorithms.load("ppo"),
        ppo.Config(epochs=epochs),
        config=LearnerConfig(**options),
        kl_config=kl.KLConfig(),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


def make_learner_of(name: str, policy: Policy, *, kl_config: kl.KLConfig | None = None, **options) -> Learner:
    """A learner of the algorithm `name`; `options` are those of its `Config` and of `LearnerConfig`."""
    algorithm = algorithms.load(name)
    known = {field.name for field in fields(algorithm.Config)}
    config = algorithm.Config(**{key: options.pop(key) for key in known & set(options)})
    return Learner(
        policy,
        algorithm,
        config,
        config=LearnerConfig(**options),
        kl_config=kl_config or kl.KLConfig(),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


def advantage_of(learner: Learner, batch: Batch) -> Advantage:
    """The advantages of a pioneer's batch by the learner's algorithm."""
    (rewards_BT,) = learner.rewards([batch])
    return learner.algorithm.advantage(
        {"pioneer_0": batch}, {"pioneer_0": rewards_BT}, learner.algorithm_config, {"pioneer_0": {}}
    )["pioneer_0"]


def gradients_used(learner: Learner) -> list[dict[str, torch.Tensor]]:
    """A list that receives the gradients, by name, of every optimiser step to come."""
    used: list[dict[str, torch.Tensor]] = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: used.append(
            {name: p.grad.clone() for name, p in learner.policy.named_parameters() if p.grad is not None}
        )
    )
    return used
