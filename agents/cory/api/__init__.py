"""The Python face of the commands: `cory.train`, `cory.evaluate`, `cory.load`, and registration of plug-ins.

Names are those of the command line: `cory train --kl.coef 0.1` is `cory.train(kl={"coef": 0.1})`.
"""

from cory.api.commands import evaluate, train
from cory.api.registration import (
    register_algorithm,
    register_critic,
    register_judge,
    register_kl,
    register_policy,
    register_task,
)
from cory.api.runs import Run, load

__all__ = [
    "Run",
    "evaluate",
    "load",
    "register_algorithm",
    "register_critic",
    "register_judge",
    "register_kl",
    "register_policy",
    "register_task",
    "train",
]
