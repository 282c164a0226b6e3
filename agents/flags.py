"""A run from its flags, where the name of the task and of the algorithm say which flags there are."""

from collections.abc import Sequence
from dataclasses import field, fields, make_dataclass
from typing import Annotated

from tyro.conf import arg

from agents import algorithms
from agents.config import Config
from agents.options import task_options
from agents.settings import parse, value_of


def named(config: Config, *, task: str, algorithm: str) -> Config:
    """The same run with another task and algorithm at their defaults, where they are others, in a class whose
    flags are theirs."""
    kinds = {"task": task_options(task), "algorithm": algorithms.load(algorithm).Config}
    before = {"task": config.task, "algorithm": config.algorithm}
    told = {f.name: getattr(config, f.name) for f in fields(Config)} | {"task": task, "algorithm": algorithm}
    if task != before["task"]:
        told["task_options"] = kinds["task"]()
    if algorithm != before["algorithm"]:
        told["algorithm_options"] = kinds["algorithm"]()
    typed = make_dataclass(
        "Config",
        [
            (f"{name}_options", Annotated[kind, arg(name=name)], field(default_factory=kind))
            for name, kind in kinds.items()
        ],
        bases=(Config,),
        frozen=True,
        kw_only=True,
    )
    changed: Config = typed(**told)
    return changed


def read(argv: Sequence[str], *, default: Config, about: str, command: str) -> Config:
    """`default` changed by flags; the options of `--task` and `--algorithm` are those of the ones named."""
    start = named(
        default,
        task=value_of(argv, "--task") or default.task,
        algorithm=value_of(argv, "--algorithm") or default.algorithm,
    )
    config: Config = parse(type(start), argv, default=start, about=about, command=command)
    return config
