"""The natural gradient: Fisher-vector products by double differentiation, conjugate gradients, flat weights.

Shapes: K chosen tokens, D width, V vocabulary, N trained weights, flat.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cory.batch import Rows
from cory.functional.logit_statistics import softmax_dtype


class Policy(Protocol):
    """The part of a policy that TRPO uses."""

    name: str
    version: int

    @property
    def reference(self) -> "Policy":
        """The frozen policy it started from."""
        ...

    def hidden_states(self, rows: Rows) -> Tensor:
        """Hidden states [K, D] that predict each chosen token."""
        ...

    def logits(self, state_KD: Tensor) -> Tensor:
        """Next-token logits [K, V]."""
        ...

    def values(self, state_KD: Tensor) -> Tensor:
        """Expected payoff still to come [K]."""
        ...

    def value_parameters(self) -> Sequence[Tensor]:
        """Parameters that only `values` uses."""
        ...


def log_p(logits_KV: Tensor) -> Tensor:
    """Compute log-probabilities that can be differentiated twice, in float32 or wider."""
    return logits_KV.log_softmax(-1, dtype=softmax_dtype(logits_KV))


def mean_kl(old_logp_KV: Tensor, logp_KV: Tensor) -> Tensor:
    """Return the mean over tokens of sum_v p_old (log p_old - log p)."""
    return (old_logp_KV.exp() * (old_logp_KV - logp_KV)).sum(-1).mean()


def flat_gradient(of: Tensor, weights: Sequence[Tensor], *, create_graph: bool = False) -> Tensor:
    """Compute the gradient [N] of `of` by all `weights`, 0 for unused ones; the graph of `of` stays."""
    parts = torch.autograd.grad(
        of, weights, retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in parts])


def fisher_product(
    policy: Policy, rows: Rows, weights: Sequence[Tensor], *, damping: float
) -> Callable[[Tensor], Tensor]:
    """Return v -> F v + damping v; F is the second derivative of KL(old || new) at the current policy."""
    logp_KV = log_p(policy.logits(policy.hidden_states(rows)))
    slope_N = flat_gradient(mean_kl(logp_KV.detach(), logp_KV), weights, create_graph=True)

    def product(vector_N: Tensor) -> Tensor:
        try:
            return flat_gradient(slope_N @ vector_N, weights) + damping * vector_N
        except RuntimeError as error:
            if not re.search("derivative|differentiate twice", str(error)):
                raise
            raise ValueError(
                f"TRPO differentiates policy {policy.name!r} twice, and a part of it does not support that "
                f'({error}); load the model with attn_implementation="eager", or take ppo'
            ) from error

    return product


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target_N: Tensor, *, steps: int, tolerance: float = 1e-8
) -> Tensor:
    """Solve product(x) = target for a symmetric positive product, from x = 0 (Hestenes & Stiefel 1952).

    Stops after `steps`, or when the residual is `tolerance` times the target.
    """
    x_N, residual_N = torch.zeros_like(target_N), target_N.clone()
    search_N, squared = residual_N, residual_N @ residual_N
    enough = squared * tolerance**2
    for _ in range(steps):
        if squared <= enough:
            break
        image_N = product(search_N)
        length = squared / (search_N @ image_N)
        x_N = x_N + length * search_N
        residual_N = residual_N - length * image_N
        squared, before = residual_N @ residual_N, squared
        search_N = residual_N + squared / before * search_N
    return x_N


def set_weights(weights: Sequence[Tensor], flat_N: Tensor) -> None:
    """Copy a flat vector into the weights, in place."""
    with torch.no_grad():
        parts = torch.split(flat_N, [weight.numel() for weight in weights])
        for weight, part_N in zip(weights, parts, strict=True):
            weight.copy_(part_N.view_as(weight))
