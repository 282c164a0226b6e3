"""Registration of plug-ins in this process; installed packages use entry points instead."""

from typing import Any

from cory import algorithms
from cory.api.rewards import Reward
from cory.functional import kl
from cory.judges import parsing
from cory.learner import central_critic
from cory.training.factory import register_policy as register_policy
from cory_env import payoff, tasks


def register_algorithm(name: str, module: Any) -> None:
    """Make a module with the hooks of an algorithm available as `algorithm=name`."""
    algorithms.register(name, module)


def register_task(name: str, task_class: type) -> None:
    """Make a task class available as `task=name`."""
    tasks.register(name, task_class)


def register_judge(name: str, judge: Reward) -> None:
    """Make a function available as the judge `name`, also inside a weighted sum; it runs in this process."""
    parsing.register(name, judge)


def register_kl(name: str, estimator: kl.Estimator) -> None:
    """Make an estimator of KL per token available as `kl={"kind": name}`."""
    if name in kl.ESTIMATORS:
        raise ValueError(f"there is a KL estimator {name!r} already; choose another name")
    kl.ESTIMATORS[name] = estimator


def register_payoff(name: str, function: payoff.PayoffFunction) -> None:
    """Make a function (scores [B, N], iteration) -> payoffs [B, N] available as `payoff=name`."""
    payoff.register(name, function)


def register_critic(name: str, critic_class: type) -> None:
    """Make a class available as `critic={"kind": name}`; made and called as `CentralCritic`."""
    central_critic.register(name, critic_class)
