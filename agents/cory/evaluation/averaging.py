"""Mean of the weights of policies that were trained from one model (model soups, arXiv:2203.05482; WARP)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cory.policies.base import Policy

NAME = "average"
"""Name of the averaged policy in metrics and folders."""


def trained(policy: Policy) -> list[nn.Parameter]:
    """The weights that training changes, in their order."""
    return [parameter for parameter in policy.parameters() if parameter.requires_grad]


def mean_weights(policies: Sequence[Policy]) -> list[Tensor]:
    """The mean of each trained weight over the policies; ValueError if they are not of one shape.

    The mean is useful only of policies that started from the same weights, since only then do units of one
    correspond to those of the other.
    """
    columns = [trained(policy) for policy in policies]
    shapes = {tuple(tuple(weight.shape) for weight in column) for column in columns}
    if len(shapes) != 1:
        names = ", ".join(policy.name for policy in policies)
        raise ValueError(f"the weights of {names} differ in shape; only policies of one model have a mean")
    with torch.no_grad():
        return [torch.stack(list(weights)).mean(0) for weights in zip(*columns, strict=True)]


@contextmanager
def averaged(policies: Sequence[Policy]) -> Iterator[Policy]:
    """The first policy with the mean weights of all; its own are back, bit for bit, after the block."""
    first, mean = policies[0], mean_weights(policies)
    own = [weight.detach().clone() for weight in trained(first)]
    name = first.name
    try:
        _write(first, mean)
        first.name = NAME
        yield first
    finally:
        first.name = name
        _write(first, own)


def _write(policy: Policy, values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(trained(policy), values, strict=True):
            weight.copy_(value)
