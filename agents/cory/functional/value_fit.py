"""Values that several seats share, fitted to returns by least squares.

Shapes: K chosen tokens.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

ROUNDING = 1e-10
"""Share of the mean square that a variance has by rounding alone."""


def explained_variance(value_K: Tensor, return_K: Tensor) -> float:
    """1 - var(return - value) / var(return): 1 is perfect, 0 no better than a constant.

    NaN where all returns are equal, but for rounding: there is nothing to explain.
    """
    variance = return_K.var(correction=0)
    if variance <= ROUNDING * return_K.square().mean():
        return math.nan
    return float(1 - (return_K - value_K).var(correction=0) / variance)


def fit(
    values: Callable[[], Tensor], return_K: Tensor, optimizer: torch.optim.Optimizer, *, epochs: int, lr: str
) -> tuple[float, float]:
    """Minimise the mean of (V - R)^2 by one step per epoch on `values()` [K].

    Returns the loss and the explained variance before the first step; FloatingPointError, which names the
    setting `lr`, if the loss is not finite.
    """
    before: tuple[float, float] | None = None
    for _ in range(epochs):
        value_K = values()
        loss = (value_K - return_K).square().mean()
        before = before or (loss.item(), explained_variance(value_K.detach(), return_K))
        if not bool(loss.isfinite()):
            raise FloatingPointError(f"the loss of values is not finite; lower {lr}")
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
    assert before is not None
    return before
