"""Registration of plug-ins in this process; installed packages use entry points instead."""

from typing import Any

from cory import algorithms
from cory.api.rewards import Reward
from cory.functional import kl
from cory.judges import parsing
from cory.learner import central_critic
from cory.policies.base import Policy
from cory.training.factory import POLICIES
from cory_env import payoff, tasks


def register_algorithm(name: str, module: Any) -> None:
    """Make a module with the hooks of an algorithm available as `algorithm=name`."""
    algorithms.register(name, module)


def register_task(name: str, task_class: type) -> None:
    """Make a task class available as `task=name`."""
    tasks.REGISTRY.register(name, task_class)


def register_judge(name: str, judge: Reward) -> None:
    """Make a function available as the judge `name`, also inside a weighted sum; it runs in this process."""
    parsing.REGISTRY.register(name, judge)


def register_kl(name: str, estimator: kl.Estimator) -> None:
    """Make an estimator of KL per token available as `kl={"kind": name}`."""
    kl.registry().register(name, estimator)


def register_payoff(name: str, function: payoff.PayoffFunction) -> None:
    """Make a function (scores [B, N], iteration) -> payoffs [B, N] available as `payoff=name`."""
    payoff.REGISTRY.register(name, function)


def register_critic(name: str, critic_class: type) -> None:
    """Make a class available as `critic={"kind": name}`; made and called as `CentralCritic`."""
    central_critic.registry().register(name, critic_class)


def register_policy(kind: str, policy_class: type[Policy]) -> None:
    """Make `policy_class` available as `policy={"kind": kind}`; it needs a classmethod `load`."""
    POLICIES.register(kind, policy_class)
