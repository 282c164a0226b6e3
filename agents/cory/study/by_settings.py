"""A study without a file: algorithms on one task, from settings as `cory train` takes them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.config import own_model
from cory.config.schema import Config
from cory.config.values import dotted

METRICS = ("combined_reward", "game/collective_reward")
"""Metrics that arms are compared by; the second one with several seats."""


def values_of(
    arms: Sequence[str], settings: Mapping[str, Any], *, seeds: int | Sequence[int], preset: str | None
) -> dict[str, Any]:
    """The keys of a study file; arguments and errors are those of `Study.from_settings`."""
    named = algorithms_by_name(arms)
    if len(named) < max(2, len(arms)):
        raise ValueError(
            f"the arms are {', '.join(arms) or 'none'}; name two algorithms or more, as "
            "ppo,mine=my_algorithm.py, or a study file"
        )
    changed = dotted(settings)
    preset = own_model.chosen(preset, changed)
    config = Config.from_flat(changed, own_model.start(preset, changed))
    if {"seed", "algorithm"} & changed.keys():
        raise ValueError("a study has `seeds` and `arms` in the place of seed and algorithm; give these")
    first, *others = named
    return {
        "name": re.sub(r"[/:]", "-", "-".join([config.task, *named])).lstrip(".-"),
        "question": f"Is {' or '.join(others)} ahead of {first} on {config.task}?",
        "preset": preset,
        "settings": {"task": config.task, **changed},
        "arms": {name: {"algorithm": algorithm} for name, algorithm in named.items()},
        "seeds": seeds if isinstance(seeds, int) else list(seeds),
        "primary": [
            {"arm": arm, "baseline": first, "metric": metric}
            for metric in METRICS[: 1 + (config.seats > 1)]
            for arm in others
        ],
    }


def algorithms_by_name(arms: Sequence[str]) -> dict[str, str]:
    """Algorithms, or NAME=ALGORITHM, by name; a file without a name has its own."""
    parts = [arm.rpartition("=") for arm in arms]
    return {name or Path(algorithm).stem: algorithm for name, _, algorithm in parts}
