"""Registration of plug-ins in this process; installed packages use entry points instead."""

from typing import Any

from cory import algorithms
from cory.functional import kl
from cory.judges import parsing
from cory.learner import central_critic
from cory.rollout import role_exchange
from cory.training.factory import POLICIES
from cory_env import payoff, tasks
from cory_env.types import one_of


def register(setting: str, name: str, plugin: Any) -> None:
    """Make a plug-in available by a name, as a value of `setting`, in this process.

    | setting | plug-in |
    |---|---|
    | `algorithm` | a module with the hooks of an algorithm |
    | `task` | a class |
    | `judge` | a function, also inside a weighted sum; it runs in this process |
    | `payoff` | a function (scores [B, N], iteration) -> payoffs [B, N] |
    | `kl.kind` | an estimator of KL per token |
    | `critic.kind` | a class, made and called as `CentralCritic` |
    | `exchange.order` | a function, as in the reference of role exchange |
    | `policy.kind` | a class of `Policy` with a classmethod `load` |

    ValueError for a name that is taken, and for another setting.
    """
    registries: dict[str, Any] = {
        "algorithm": algorithms,
        "task": tasks.REGISTRY,
        "judge": parsing.REGISTRY,
        "payoff": payoff.REGISTRY,
        "kl.kind": kl.registry(),
        "critic.kind": central_critic.REGISTRY,
        "exchange.order": role_exchange.registry(),
        "policy.kind": POLICIES,
    }
    one_of("setting", setting, list(registries))
    registries[setting].register(name, plugin)
