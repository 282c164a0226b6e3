"""Exponential moving average of the weights of a policy.

average <- decay average + (1 - decay) weights    after every iteration, from the initial weights on
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class MovingAverage:
    """The moving average of weights, beside them."""

    def __init__(self, weights: Sequence[nn.Parameter], *, decay: float) -> None:
        """`weights` are the policy's, at their start."""
        self.weights, self.decay = list(weights), decay
        self.average = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights as they are."""
        for weight, average in zip(self.weights, self.average, strict=True):
            average.lerp_(weight, 1 - self.decay)

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        return {"average": list(self.average)}

    @torch.no_grad()
    def load_state_dict(self, content: Mapping[str, Sequence[Tensor]]) -> None:
        """Load what `state_dict` returned."""
        for average, saved in zip(self.average, content["average"], strict=True):
            average.copy_(saved)
