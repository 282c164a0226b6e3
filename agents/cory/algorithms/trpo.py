"""TRPO (arXiv:1502.05477, appendix C): one natural-gradient step per iteration inside a bound on KL.

The loss is no sum over tokens, so the algorithm has an `update` of its own, with the whole batch in one
graph. It holds the log-probabilities of all K tokens over the vocabulary, [K, V], about four times, and the
trunk's activations for a second derivative; minibatches, micro-batches and `learner.max_grad_norm` are not
used, and `learner.lr` for the value head only. It is meant for tables, adapters and small models.

Shapes: T response tokens, K chosen tokens, D width, V vocabulary, N trained weights, flat.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from cory.algorithms import a2c
from cory.algorithms.base import GAEConfig
from cory.algorithms.ppo import advantage
from cory.batch import Batch, Rows
from cory.functional import kl
from cory.functional.advantage import Advantage
from cory.functional.logit_statistics import softmax_dtype
from cory.token_loss import TokenLoss, Tokens, drift

__all__ = ["Config", "advantage", "token_loss", "update"]


@dataclass(frozen=True, kw_only=True)
class Config(GAEConfig):
    """Settings of the TRPO update."""

    max_kl: float = 0.01
    """Upper bound on KL(old || new) in nats per token, the mean over the batch (the paper's delta)."""

    cg_steps: int = 10
    """Conjugate-gradient steps, each a Fisher-vector product over the batch."""

    fisher_every: int = 1
    """Fisher-vector products, which take most of the time, use every n-th response only (the paper: 10)."""

    damping: float = 0.1
    """Multiple of the identity that is added to the Fisher matrix, which a batch does not determine fully."""

    shrink: float = 0.8
    """Each step length of the line search is this fraction of the one before."""

    tries: int = 10
    """Step lengths the line search tries; if none is accepted, the policy stays as it is."""

    value_steps: int = 10
    """Steps of the learner's optimiser on the value loss; they change the value head only."""


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """Return the value loss of each token; the policy learns in `update`."""
    loss_K = a2c.value_loss(tokens.value_K, tokens.return_K)
    metrics, maxima = drift(tokens)
    return TokenLoss(loss_K, {"value_loss": loss_K.detach(), **metrics}, maxima)


def update(learner: Any, batch: Batch, advantage: Advantage, config: Config) -> dict[str, float]:
    """Take one step of the policy inside the trust region, then the steps of the value head.

    Returns `step_kl` (KL(old || new) per token), `improvement` of the surrogate, `line_search` (the accepted
    fraction of the longest step, 0 = none) and the metrics of `token_loss`, all after the step. Raises
    ValueError if the policy cannot be differentiated twice.
    """
    policy = learner.policy
    values = {id(p) for p in policy.value_parameters()}
    weights = [p for p in learner.trainable if id(p) not in values]
    before = policy.version
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no second derivative
        metrics = step(learner, batch, advantage, config, weights)
    policy.version += metrics["line_search"] > 0
    with torch.no_grad():
        state_KD = policy.hidden_states(batch)
        tokens = tokens_of(learner, batch, advantage, state_KD)[1]
    for _ in range(config.value_steps):
        learner.optimizer.zero_grad(set_to_none=True)
        fitted = tokens._replace(value_K=policy.values(state_KD))
        torch.autograd.backward(token_loss(fitted, config).loss_K.mean())
        learner.optimizer.step()
        policy.version += 1
    last = token_loss(tokens._replace(value_K=policy.values(state_KD).detach()), config)
    metrics |= {name: metric_K.mean().item() for name, metric_K in last.metrics.items()}
    metrics |= {name: metric_K.max().item() for name, metric_K in last.maxima.items()}
    if broken := [name for name, value in metrics.items() if not math.isfinite(value)]:
        raise FloatingPointError(
            f"{', '.join(broken)} of policy {policy.name!r} is not finite; lower algorithm.max_kl"
        )
    return metrics | {"steps": float(policy.version - before)}


def step(
    learner: Any, batch: Batch, advantage: Advantage, config: Config, weights: Sequence[Tensor]
) -> dict[str, float]:
    """Move `weights` by the longest tried step that stays within the KL bound and lowers the loss.

    step = sqrt(2 max_kl / x F x) x,  F x = -gradient of the loss        F = Fisher matrix + damping
    """
    logp_KV, tokens = tokens_of(learner, batch, advantage, learner.policy.hidden_states(batch))
    old_logp_KV, loss = logp_KV.detach(), surrogate(learner, tokens)
    metrics = {"first_ratio_deviation": drift(tokens)[1]["ratio_deviation"].max().item()}
    gradient_N = flat_gradient(loss, weights)
    metrics |= {"gradient_norm": gradient_N.norm().item(), "line_search": 0.0, "step_kl": 0.0}
    metrics |= {"improvement": 0.0, "policy_loss": loss.item()}
    rows = batch.take(torch.arange(0, len(batch), config.fisher_every, device=gradient_N.device))
    fisher = fisher_product(learner.policy, rows, weights, damping=config.damping)
    direction_N = conjugate_gradient(fisher, -gradient_N, steps=config.cg_steps)
    curvature = (direction_N @ fisher(direction_N)).item()
    if curvature <= 0:  # the gradient is 0
        return metrics
    start_N = torch.cat([weight.detach().flatten() for weight in weights])
    longest_N = (2 * config.max_kl / curvature) ** 0.5 * direction_N
    for fraction in (config.shrink**i for i in range(config.tries)):
        set_weights(weights, start_N + fraction * longest_N)
        with torch.no_grad():
            logp_KV, tokens = tokens_of(learner, batch, advantage, learner.policy.hidden_states(batch))
            moved, after = mean_kl(old_logp_KV, logp_KV).item(), surrogate(learner, tokens).item()
        if moved <= config.max_kl and after < loss.item():
            metrics |= {"step_kl": moved, "line_search": fraction}
            return metrics | {"improvement": loss.item() - after, "policy_loss": after}
    set_weights(weights, start_N)
    return metrics


def tokens_of(learner: Any, batch: Batch, advantage: Advantage, state_KD: Tensor) -> tuple[Tensor, Tokens]:
    """Compute log-probabilities over the vocabulary [K, V] and the inputs of a token loss."""
    policy = learner.policy
    logp_KV = log_p(policy.logits(state_KD))
    exact_K = None
    if learner.kl_config.place == "loss" and learner.kl_config.kind not in kl.SAMPLED:
        with torch.no_grad():
            reference = policy.reference
            ref_logp_KV = log_p(reference.logits(reference.hidden_states(batch)))
        exact_K = (logp_KV.exp() * (logp_KV - ref_logp_KV)).sum(-1)
    return logp_KV, Tokens(
        logprob_K=logp_KV.gather(1, batch.chosen(batch.response_BT)[:, None]).squeeze(1),
        value_K=policy.values(state_KD),
        entropy_K=-(logp_KV.exp() * logp_KV).sum(-1),
        exact_kl_K=exact_K,
        old_logprob_K=batch.chosen(batch.old_logprobs_BT),
        ref_logprob_K=batch.chosen(batch.ref_logprobs_BT),
        old_value_K=batch.chosen(batch.values_BT),
        advantage_K=batch.chosen(advantage.advantage_BT),
        return_K=batch.chosen(advantage.return_BT),
    )


def surrogate(learner: Any, tokens: Tokens) -> Tensor:
    """Return the mean of -ratio A (eq. 14), plus the KL term if `kl.place` is loss."""
    loss_K = -torch.exp(tokens.logprob_K - tokens.old_logprob_K) * tokens.advantage_K
    if learner.kl_config.place == "loss":
        loss_K = kl.add_to_loss(loss_K, tokens, kind=learner.kl_config.kind, coef=learner.kl_coef)
    return loss_K.mean()


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
    policy: Any, rows: Rows, weights: Sequence[Tensor], *, damping: float
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
