"""The trained state in memory, so that an update can be undone."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cory.learner.learner import Learner
from cory.runtime.memory import free_bytes
from cory.training.checkpoint import optimizer_tensors, restore_optimizer


class Snapshot(NamedTuple):
    """Weights, optimizers and other state at the start of an iteration."""

    tensors: dict[str, dict[str, Tensor]]
    """By policy: trained parameters and optimizer states, in main memory."""
    numbers: dict[str, Any]
    """`TrainedState.numbers()`."""
    of_algorithm: dict[str, Any]
    """`TrainedState.of_algorithm()`."""


def take_snapshot(
    learners: Mapping[str, Learner], numbers: Mapping[str, Any], of_algorithm: Mapping[str, Any]
) -> Snapshot | None:
    """A copy of the trained state in main memory.

    None if that is more than half of what is free, or if this rank holds only a part of it.
    """
    if any(learner.policy.is_sharded for learner in learners.values()):
        return None
    tensors = {
        name: {
            **{f"parameter.{i}": p.detach() for i, p in enumerate(learner.trainable)},
            **{f"optimizer.{key}": t for key, t in optimizer_tensors(learner.optimizer).items()},
        }
        for name, learner in learners.items()
    }
    size = sum(t.numel() * t.element_size() for of in tensors.values() for t in of.values())
    if size > free_bytes(torch.device("cpu")) // 2:
        return None
    copies = {name: {key: t.to("cpu", copy=True) for key, t in of.items()} for name, of in tensors.items()}
    return Snapshot(copies, deepcopy(dict(numbers)), deepcopy(dict(of_algorithm)))


def restore_tensors(learners: Mapping[str, Learner], snapshot: Snapshot) -> None:
    """Write the weights and optimizer states of `snapshot` into the learners, in place."""
    for name, tensors in snapshot.tensors.items():
        with torch.no_grad():
            for i, parameter in enumerate(learners[name].trainable):
                parameter.copy_(tensors[f"parameter.{i}"])
        saved = {k.removeprefix("optimizer."): t for k, t in tensors.items() if k.startswith("optimizer.")}
        restore_optimizer(learners[name].optimizer, saved)
