"""Mean of the weights of policies that were trained from one model (model soups, arXiv:2203.05482; WARP)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cory.policies.base import Policy, whole_weights

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
    if weights is not None and (len(weights) != len(policies) or sum(weights) == 0):
        given = ", ".join(map(str, weights))
        raise ValueError(
            f"weights are {given} for {len(policies)} policies; give one each, of a sum other than 0"
        )
    share_P = torch.ones(len(policies)) if weights is None else torch.tensor(weights)
    share_P = share_P / share_P.sum()
    with torch.no_grad():
        return [
            torch.einsum("p,p...->...", share_P.to(c[0]), torch.stack(c)) for c in zip(*columns, strict=True)
        ]


def move_to_reference(policy: Policy, share: float) -> None:
    """Set weights to `share` of the way from the reference's to the policy's own, in place (LITI of WARP).

    Of an adapter the update of the backbone is scaled. ValueError where the weights are not the reference's
    in shape.
    """
    reference = policy.reference.distribution_weights()
    with torch.no_grad():
        for name, weight in policy.distribution_weights().items():
            if ".lora_B." in name:
                weight.mul_(share)
            elif ".lora_A." not in name and weight.is_floating_point():
                if name not in reference or reference[name].shape != weight.shape:
                    raise ValueError(f"policy {policy.name!r}: {name} is not in its reference")
                weight.lerp_(reference[name].to(weight), 1 - share)


@contextmanager
def averaged(
    policies: Sequence[Policy],
    weights: Sequence[float] | None = None,
    *,
    columns: Sequence[Sequence[Tensor]] = (),
) -> Iterator[Policy]:
    """The first policy with the mean weights of all; its own are back, bit for bit, after the block."""
    with whole_weights(policies):
        first, mean = policies[0], mean_weights(policies, weights, columns=columns)
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
