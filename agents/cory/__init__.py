"""CORY: sequential multi-agent reinforcement learning of LLMs, the players and their training.

    import cory

    run = cory.train(model="pocket", iterations=30)
    run.metrics  # a DataFrame, one row per iteration

The game itself is the package `cory_env`. Importing this package loads nothing heavy: names are imported at
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cory import rewards
    from cory.api.averaging import average
    from cory.api.commands import check, cross_play, evaluate, train
    from cory.api.probe import probe
    from cory.api.registration import register
    from cory.api.runs import Run, load
    from cory.config import presets
    from cory.config.schema import Config
    from cory.study import Study
    from cory.training.trainer import Trainer

__version__ = "0.2.0"
__all__ = [
    "Config",
    "Run",
    "Study",
    "Trainer",
    "average",
    "check",
    "cross_play",
    "evaluate",
    "load",
    "presets",
    "probe",
    "register",
    "rewards",
    "train",
]

_MODULES = {
    "Config": "cory.config.schema",
    "Run": "cory.api.runs",
    "Study": "cory.study",
    "Trainer": "cory.training.trainer",
    "average": "cory.api.averaging",
    "check": "cory.api.commands",
    "cross_play": "cory.api.commands",
    "evaluate": "cory.api.commands",
    "load": "cory.api.runs",
    "presets": "cory.config.presets",
    "probe": "cory.api.probe",
    "register": "cory.api.registration",
    "rewards": "cory.rewards",
    "train": "cory.api.commands",
}
"""Where names are."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cory' has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return module if name in ("presets", "rewards") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
