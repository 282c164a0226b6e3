"""Mean of the weights of policies that were trained from one model (model soups, arXiv:2203.05482; WARP)."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cory.policies.base import Policy, unsharded
from cory.policies.lora_config import LORA_A, LORA_B

NAME = "average"
"""Name of the averaged policy in metrics and folders."""


def trained(policy: Policy) -> list[nn.Parameter]:
    """The weights that training changes, in their order."""
    return [parameter for parameter in policy.parameters() if parameter.requires_grad]


def mean_weights(
    policies: Sequence[Policy],
    weights: Sequence[float] | None = None,
    *,
    columns: Sequence[Sequence[Tensor]] = (),
) -> list[Tensor]:
    """The mean of each trained weight over the policies, weighted by `weights` over their sum.

    `columns` take the place of the policies' trained weights: moving averages of them.

    ValueError if the policies are not of one shape, or the weights do not fit them.

    The mean is useful only of policies that started from the same weights, since only then do units of one
    correspond to those of the other.
    """
    columns = columns or [trained(policy) for policy in policies]
    shapes = {tuple(tuple(weight.shape) for weight in column) for column in columns}
    if len(shapes) != 1:
        names = ", ".join(policy.name for policy in policies)
        raise ValueError(f"the weights of {names} differ in shape; only policies of one model have a mean")
    share_P = _shares(policies, weights)
    with torch.no_grad():
        return [
            torch.einsum("p,p...->...", share_P.to(c[0]), torch.stack(c)) for c in zip(*columns, strict=True)
        ]


def _shares(policies: Sequence[Policy], weights: Sequence[float] | None) -> Tensor:
    """The share of each policy in the mean: `weights` over their sum."""
    if weights is not None and (len(weights) != len(policies) or not 0 < abs(sum(weights)) < math.inf):
        given = ", ".join(map(str, weights))
        raise ValueError(
            f"weights are {given} for {len(policies)} policies; give one each, finite, of a sum other than 0"
        )
    share_P = torch.ones(len(policies)) if weights is None else torch.tensor(weights)
    return share_P / share_P.sum()


@contextmanager
def averaged(
    policies: Sequence[Policy],
    weights: Sequence[float] | None = None,
    *,
    columns: Sequence[Sequence[Tensor]] = (),
) -> Iterator[Policy]:
    """The first policy with the mean weights of all; their own are back, bit for bit, after the block.

    Of a LoRA team it is the mean of what the adapters add to the backbone, which is a sum of adapters but no
    adapter of their rank: the mean of their factors would be another model.
    """
    first = policies[0]
    with unsharded(policies), first.joined(policies):
        if any(LORA_B in name for name, _ in first.named_parameters()):
            values = _adapters_with_shares(policies, weights, columns=columns)
        else:
            values = [mean_weights(policies, weights, columns=columns)]
        written = policies[: len(values)]
        before = [[weight.detach().clone() for weight in trained(policy)] for policy in written]
        name = first.name
        try:
            _write(written, values)
            first.name = NAME
            yield first
        finally:
            first.name = name
            _write(written, before)


def _adapters_with_shares(
    policies: Sequence[Policy], weights: Sequence[float] | None, *, columns: Sequence[Sequence[Tensor]]
) -> list[list[Tensor]]:
    """Weights of each policy with which their adapters add up to the mean: the second factor times the share.

    The value head, which is no adapter, is the mean itself.
    """
    columns = columns or [trained(policy) for policy in policies]
    mean = mean_weights(policies, weights, columns=columns)
    names = [name for name, weight in policies[0].named_parameters() if weight.requires_grad]

    def scaled(name: str, weight: Tensor, tensor: Tensor, share: float) -> Tensor:
        if LORA_A in name:
            return weight.detach().clone()
        return weight.detach() * share if LORA_B in name else tensor

    return [
        [scaled(*triple, share) for triple in zip(names, column, mean, strict=True)]
        for share, column in zip(_shares(policies, weights).tolist(), columns, strict=True)
    ]


@torch.no_grad()
def _write(policies: Sequence[Policy], values: Sequence[Sequence[Tensor]]) -> None:
    for policy, column in zip(policies, values, strict=True):
        for weight, value in zip(trained(policy), column, strict=True):
            weight.copy_(value)
