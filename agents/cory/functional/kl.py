"""The KL penalty: estimators of KL(policy || reference) per token, and their coefficient (the paper's eta).

Shapes: B games, T response tokens, K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from cory.token_loss import Tokens
    from cory_env.registry import Registry

from cory.runtime.checks import check_fields

Estimator = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]
"""(logprobs, reference logprobs, exact KL) -> estimate, all of one shape."""


@dataclass(frozen=True, kw_only=True)
class KLConfig:
    """The KL penalty that keeps a policy near its reference."""

    kind: str = "k1"
    """Estimator per token: k1, k2, k3, abs, full, or one of your own: `module:function`, `file.py:function`
    or an entry point of `cory.kl`. `full` (the paper's) is exact over the vocabulary, but in the reward it
    depends on the state only: it gives the sampled token no direct gradient. `k1` does."""

    place: Literal["reward", "loss"] = "reward"
    """`reward`: subtracted from the reward of each token, as in CORY. `loss`: a term of the loss with its own
    gradient: `full` and `k2` penalise KL(policy || reference), k3 KL(reference || policy), k1 nothing (mean
    0). Whitened advantages rescale the payoff but not this term: turn whitening off (algorithm.no-whiten)."""

    coef: float = 0.2
    """KL coefficient: penalty per nat (the paper's eta)."""

    final: float | None = None
    """The coefficient moves linearly from `coef` to this, its value after the last iteration; none = it does
    not."""

    target: float | None = None
    """KL per response in nats that an adaptive coefficient steers to; none = the coefficient stays fixed."""

    def __post_init__(self) -> None:
        estimator(self.kind)
        check_fields(self, "kl", weight="coef final", positive="target")
        if self.place == "loss" and self.kind == "k1":
            raise ValueError(
                "kl.kind k1 in the loss has a gradient of mean 0 and penalises nothing; take k2, k3 or full"
            )
        if self.final is not None and self.target is not None:
            raise ValueError("kl.final and kl.target both change the coefficient; give one of them")
        if self.target is not None and self.coef == 0:
            raise ValueError("kl.target multiplies kl.coef, which is 0; give a coefficient above 0")


def k1(logprobs: Tensor, ref_logprobs: Tensor, exact_kl: Tensor) -> Tensor:
    """x = log pi - log ref: unbiased, may be negative (`kl` in the released code)."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor, exact_kl: Tensor) -> Tensor:
    """x^2 / 2 (`mse` in the released code)."""
    return (logprobs - ref_logprobs).square() / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor, exact_kl: Tensor) -> Tensor:
    """exp(-x) - 1 + x: unbiased and never negative."""
    log_ratio = logprobs - ref_logprobs
    return (-log_ratio).expm1() + log_ratio


def absolute(logprobs: Tensor, ref_logprobs: Tensor, exact_kl: Tensor) -> Tensor:
    """|x|."""
    return (logprobs - ref_logprobs).abs()


def full(logprobs: Tensor, ref_logprobs: Tensor, exact_kl: Tensor) -> Tensor:
    """sum_v pi_v (log pi_v - log ref_v), exact over the vocabulary."""
    return exact_kl


ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "abs": absolute, "full": full}
"""By the names that `kl.kind` takes (http://joschu.net/blog/kl-approx.html)."""

SAMPLED = ("k1", "k2", "k3", "abs")
"""Estimators that look at the sampled token only; others need the exact KL."""


@cache
def registry() -> Registry[Estimator]:
    """The estimators by name; the loader of plug-ins is imported when one is asked for."""
    from cory_env.registry import Registry

    form = "module:function or file.py:function"
    takes = ("logprobs", "ref_logprobs", "exact_kl")
    return Registry("kl.kind", "cory.kl", ESTIMATORS, form=form, takes=takes)


@cache
def estimator(kind: str) -> Estimator:
    """The estimator called `kind`: one of `ESTIMATORS`, or a plug-in (`cory_env.registry`)."""
    return ESTIMATORS[kind] if kind in ESTIMATORS else registry().load(kind)


def estimate(kind: str, logprobs_BT: Tensor, ref_logprobs_BT: Tensor, exact_kl_BT: Tensor) -> Tensor:
    """KL(policy || reference) at each token in nats, by the estimator called `kind`.

    k1, k3 and full have the same mean. ValueError for an estimator that returns another shape,
    FloatingPointError for one of your own that is not finite at a token.
    """
    from torch import Tensor

    # copies: an estimator of one's own that writes into its arguments must not change the batch
    found_BT = estimator(kind)(logprobs_BT.clone(), ref_logprobs_BT.clone(), exact_kl_BT.clone())
    if not isinstance(found_BT, Tensor) or found_BT.shape != logprobs_BT.shape:
        got = tuple(found_BT.shape) if isinstance(found_BT, Tensor) else type(found_BT).__name__
        raise ValueError(f"kl.kind {kind!r} returned {got}; return estimates {tuple(logprobs_BT.shape)}")
    if kind not in ESTIMATORS and not bool(found_BT[logprobs_BT != 0].isfinite().all()):
        raise FloatingPointError(f"kl.kind {kind!r} returned an estimate that is not finite")
    return found_BT


def add_to_loss(loss_K: Tensor, tokens: Tokens, *, kind: str, coef: float) -> Tensor:
    """loss + coef * KL of each token, with the gradient of KL at the sampled tokens.

    Exact for one token per response; for longer ones it leaves out a token's effect on the KL of later
    states.
    """
    exact_K = loss_K.new_zeros(loss_K.shape) if tokens.exact_kl_K is None else tokens.exact_kl_K
    return loss_K + coef * estimate(kind, tokens.logprob_K, tokens.ref_logprob_K, exact_K)


HORIZON = 10_000
"""Responses over which the adaptive coefficient reacts (the released code's)."""


def coefficient_at(config: KLConfig, iteration: int, iterations: int) -> float:
    """The scheduled coefficient: coef + (final - coef) iteration / iterations."""
    if config.final is None:
        return config.coef
    return config.coef + (config.final - config.coef) * iteration / iterations


def next_coefficient(coef: float, kl: float, *, target: float, responses: int) -> float:
    """The adaptive coefficient after a batch of mean KL `kl` per response (arXiv:1909.08593, section 2.2).

    e = clip(kl / target - 1, -0.2, 0.2)        coef * (1 + e * responses / HORIZON)
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * responses / HORIZON)
