"""The KL price: estimators per token and the coefficient (eta) that multiplies them.

Shapes: B games, T response tokens.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from agents.algorithms import Tokens

Kind = Literal["k1", "k2", "k3", "abs", "full"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """How far from the reference costs how much."""

    kind: Kind = "k1"
    """Estimator per token. `full` (the paper's) is exact over the vocabulary, but as part of the reward it is
    a number that depends on the state only: it gives the token at hand no direct gradient. `k1` does."""

    place: Literal["reward", "loss"] = "reward"
    """`reward`: a price on each token, as in CORY. `loss`: a term of the loss, with a gradient of its own:
    `full` and `k2` price KL(policy || reference), k3 KL(reference || policy), k1 nothing (mean 0). Whitened
    advantages inflate the payoff and not this price: turn whitening off (algorithm.no-whiten)."""

    coef: float = 0.2
    """Price of one nat (the paper's eta)."""

    final: float | None = None
    """The price moves in equal steps from `coef` to this over `over` iterations; none = it does not."""

    over: int = 0
    """Iterations in which the price reaches `final`."""

    target: float | None = None
    """KL per response in nats that an adaptive coefficient steers to; none = the coefficient stays fixed."""

    horizon: int = 10_000
    """Responses over which the adaptive coefficient reacts."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kl.kind is {self.kind!r}; there are {', '.join(get_args(Kind))}")
        if not 0 <= self.coef < float("inf"):
            raise ValueError(f"kl.coef is {self.coef}; a price of KL is finite and 0 or more")
        if self.place not in ("reward", "loss"):
            raise ValueError(f"kl.place is {self.place!r}; there are reward, loss")
        if self.place == "loss" and self.kind == "k1":
            raise ValueError(
                "kl.kind k1 in the loss has a gradient of mean 0 and prices nothing; take k2, k3 or full"
            )
        if self.final is not None and (not 0 <= self.final < float("inf") or self.over < 1):
            raise ValueError(
                f"kl.final is {self.final} over {self.over} iterations; give a price of 0 or more and kl.over"
            )
        if self.final is not None and self.target is not None:
            raise ValueError("kl.final and kl.target both steer the price; give one of them")
        if self.target is not None and self.target <= 0:
            raise ValueError(
                f"kl.target is {self.target}; give nats per response above 0, or none for a fixed price"
            )
        if self.horizon < 1:
            raise ValueError(f"kl.horizon is {self.horizon}; give a number of responses, 1 or more")


def estimate(kind: Kind, logprobs_BT: Tensor, ref_logprobs_BT: Tensor, exact_kl_BT: Tensor) -> Tensor:
    """KL(policy || reference) at each chosen token, in nats (http://joschu.net/blog/kl-approx.html).

        x = log pi - log ref:  k1 = x    k2 = x^2 / 2    k3 = exp(-x) - 1 + x    abs = |x|    full = sum_v
        pi_v x_v

    k1, k3 and full have the same mean; k1 may be negative. The released code calls k1 `kl` and k2 `mse`.
    """
    log_ratio_BT = logprobs_BT - ref_logprobs_BT
    match kind:
        case "k1":
            return log_ratio_BT
        case "k2":
            return log_ratio_BT.square() / 2
        case "k3":
            return (-log_ratio_BT).expm1() + log_ratio_BT
        case "abs":
            return log_ratio_BT.abs()
        case "full":
            return exact_kl_BT


def in_loss(loss_K: Tensor, tokens: Tokens, *, kind: Kind, coef: float) -> Tensor:
    """loss + coef * KL of each token, the gradient of KL taken at the tokens that were sampled.

    Exact for one token per response; of longer ones it leaves out what a token does to the KL of later
    states.
    """
    exact_K = tokens.exact_kl_K if tokens.exact_kl_K is not None else torch.zeros_like(loss_K)
    return loss_K + coef * estimate(kind, tokens.logprob_K, tokens.ref_logprob_K, exact_K)


def coefficient_at(config: Config, iteration: int) -> float:
    """The scheduled price: coef + (final - coef) min(iteration / over, 1)."""
    if config.final is None:
        return config.coef
    return config.coef + (config.final - config.coef) * min(iteration / config.over, 1.0)


def next_coefficient(coef: float, kl: float, *, target: float, horizon: int, responses: int) -> float:
    """The coefficient after a batch whose mean KL per response was `kl` (arXiv:1909.08593, section 2.2).

    e = clip(kl / target - 1, -0.2, 0.2)        coef * (1 + e * responses / horizon)
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * responses / horizon)
