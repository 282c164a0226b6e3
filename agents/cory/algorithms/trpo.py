"""TRPO (arXiv:1502.05477, appendix C): one natural-gradient step per iteration inside a bound on KL.

Not a sum over tokens: it has an update of its own, in which the whole batch is one graph. That keeps the
log-probabilities of all K tokens over the vocabulary, [K, V], about four times, and the trunk's activations
for a second derivative; minibatches, micro-batches and `learner.lr` play no part but for the value head. It
is made for tables, adapters and small models.

Shapes: T response tokens, K chosen tokens, D width, V vocabulary, N trained weights, flat.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from cory.functional import kl
from cory.functional.advantage import Advantage
from cory.algorithms.base import AlgorithmState
from cory.token_loss import TokenLoss, Tokens
from cory.algorithms import a2c
from cory.algorithms.reinforce import drift
from cory.batch import Batch, Rows
from cory.functional.logit_statistics import softmax_dtype

class Policy(Protocol):
    """What TRPO uses of a policy."""

    name: str
    version: int

    @property
    def reference(self) -> "Policy": ...

    def hidden_states(self, rows: Rows) -> Tensor: ...

    def logits(self, state_KD: Tensor) -> Tensor: ...

    def values(self, state_KD: Tensor) -> Tensor: ...

    def value_parameters(self) -> Sequence[Tensor]: ...


class Learner(Protocol):
    """What TRPO uses of a learner."""

    policy: Any
    """A `Policy`."""
    kl_config: kl.KLConfig
    kl_coef: float
    trainable: list[Any]
    optimizer: torch.optim.Optimizer


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the TRPO update."""

    max_kl: float = 0.01
    """Bound on KL(old || new), nats per token, mean over the batch (the paper's delta)."""

    cg_steps: int = 10
    """Conjugate-gradient steps, each a Fisher-vector product over the batch."""

    fisher_every: int = 1
    """Only one response in so many enters the Fisher-vector products, which take most of the time (the paper:
    10)."""

    damping: float = 0.1
    """Added to the Fisher matrix, which no batch determines fully."""

    shrink: float = 0.8
    """Each try of the line search is this fraction of the one before."""

    tries: int = 10
    """Lengths the line search tries before it leaves the policy as it is."""

    value_steps: int = 10
    """Steps of the learner's optimiser on the value loss, which reach the value head alone."""

    gamma: float = 1.0
    """Discount per token."""

    lam: float = 0.95
    """Lambda of the advantage estimation."""

    whiten: bool = True
    """Whether advantages get mean 0 and deviation 1 over the batch."""

    def __post_init__(self) -> None:
        for name in ("max_kl", "damping"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"algorithm.{name} is {getattr(self, name)}; give a finite number above 0")
        for name, least in {"cg_steps": 1, "fisher_every": 1, "tries": 1, "value_steps": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"algorithm.{name} is {getattr(self, name)}; give {least} or more")
        if not 0 < self.shrink < 1:
            raise ValueError(f"algorithm.shrink is {self.shrink}; choose a value between 0 and 1")
        _ = self.critic  # refuses the rest

    @property
    def critic(self) -> a2c.Config:
        """The A2C whose advantages these are."""
        return a2c.Config(gamma=self.gamma, lam=self.lam, whiten=self.whiten)


def advantage(
    batches: Mapping[str, Batch],
    rewards: Mapping[str, Tensor],
    config: Config,
    states: Mapping[str, AlgorithmState],
) -> dict[str, Advantage]:
    """A2C's: GAE per seat, whitened on request; no state is kept."""
    return a2c.advantage(batches, rewards, config.critic, states)


def token_loss(tokens: Tokens, config: Config) -> TokenLoss:
    """The value loss alone: the policy learns in `update`."""
    loss_K = a2c.value_loss(tokens.value_K, tokens.return_K)
    metrics, maxima = drift(tokens)
    return TokenLoss(loss_K, {"value_loss": loss_K.detach(), **metrics}, maxima)


def update(learner: Learner, batch: Batch, advantage: Advantage, config: Config) -> dict[str, float]:
    """One step of the policy inside the trust region, then the value head's steps.

    Returns `step_kl` (KL(old || new) per token), `improvement` of the surrogate, `line_search` (the share of
    the longest step that was taken, 0 = none) and what `token_loss` reports, all after the step. Raises
    ValueError where the policy cannot be differentiated twice.
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
    metrics |= {name: number_K.mean().item() for name, number_K in last.metrics.items()}
    metrics |= {name: number_K.max().item() for name, number_K in last.maxima.items()}
    if broken := [name for name, number in metrics.items() if not math.isfinite(number)]:
        raise FloatingPointError(
            f"{', '.join(broken)} of policy {policy.name!r} is not finite; lower algorithm.max_kl"
        )
    return metrics | {"steps": float(policy.version - before)}


def step(
    learner: Learner, batch: Batch, advantage: Advantage, config: Config, weights: Sequence[Tensor]
) -> dict[str, float]:
    """Move `weights` by the longest of the tried steps that keeps KL within bounds and lowers the loss.

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
    if curvature <= 0:  # no gradient, no direction
        return metrics
    start_N = torch.cat([weight.detach().flatten() for weight in weights])
    longest_N = (2 * config.max_kl / curvature) ** 0.5 * direction_N
    for share in (config.shrink**i for i in range(config.tries)):
        set_weights(weights, start_N + share * longest_N)
        with torch.no_grad():
            logp_KV, tokens = tokens_of(learner, batch, advantage, learner.policy.hidden_states(batch))
            moved, after = mean_kl(old_logp_KV, logp_KV).item(), surrogate(learner, tokens).item()
        if moved <= config.max_kl and after < loss.item():
            metrics |= {"step_kl": moved, "line_search": share}
            return metrics | {"improvement": loss.item() - after, "policy_loss": after}
    set_weights(weights, start_N)
    return metrics


def tokens_of(learner: Learner, batch: Batch, advantage: Advantage, state_KD: Tensor) -> tuple[Tensor, Tokens]:
    """Log-probabilities over the vocabulary [K, V], and the tokens as a loss sees them."""
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


def log_p(logits_KV: Tensor) -> Tensor:
    """Log-probabilities that can be differentiated twice, in float32 or more."""
    return logits_KV.log_softmax(-1, dtype=softmax_dtype(logits_KV))


def surrogate(learner: Learner, tokens: Tokens) -> Tensor:
    """mean of -ratio A (eq. 14), plus the price of KL where that belongs to the loss."""
    loss_K = -torch.exp(tokens.logprob_K - tokens.old_logprob_K) * tokens.advantage_K
    if learner.kl_config.place == "loss":
        loss_K = kl.add_to_loss(
            loss_K,
            tokens.logprob_K,
            tokens.ref_logprob_K,
            tokens.exact_kl_K,
            kind=learner.kl_config.kind,
            coef=learner.kl_coef,
        )
    return loss_K.mean()


def mean_kl(old_logp_KV: Tensor, logp_KV: Tensor) -> Tensor:
    """mean over tokens of sum_v p_old (log p_old - log p)."""
    return (old_logp_KV.exp() * (old_logp_KV - logp_KV)).sum(-1).mean()


def flat_gradient(of: Tensor, weights: Sequence[Tensor], *, create_graph: bool = False) -> Tensor:
    """The gradient [N] with respect to all `weights`, 0 where one is not used; the graph of `of` stays."""
    parts = torch.autograd.grad(
        of, weights, retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in parts])


def fisher_product(
    policy: Policy, rows: Rows, weights: Sequence[Tensor], *, damping: float
) -> Callable[[Tensor], Tensor]:
    """v -> F v + damping v, F the second derivative of KL(old || new) where both are the policy as it is."""
    logp_KV = log_p(policy.logits(policy.hidden_states(rows)))
    slope_N = flat_gradient(mean_kl(logp_KV.detach(), logp_KV), weights, create_graph=True)

    def product(vector_N: Tensor) -> Tensor:
        try:
            return flat_gradient(slope_N @ vector_N, weights) + damping * vector_N
        except RuntimeError as error:
            if not re.search("derivative|differentiate twice", str(error)):
                raise
            raise ValueError(
                f"TRPO differentiates policy {policy.name!r} twice and a part of it does not allow that "
                f'({error}); load the model with attn_implementation="eager", or take ppo'
            ) from error

    return product


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target_N: Tensor, *, steps: int, tolerance: float = 1e-8
) -> Tensor:
    """x with product(x) = target for a symmetric positive product, begun at 0 (Hestenes & Stiefel 1952).

    Stops after `steps`, or once the residual is `tolerance` times the target.
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
    """Write a flat vector into the weights, in place."""
    with torch.no_grad():
        parts = torch.split(flat_N, [weight.numel() for weight in weights])
        for weight, part_N in zip(weights, parts, strict=True):
            weight.copy_(part_N.view_as(weight))
