"""Exponential moving average of the weights of a policy, and Elastic Reset (arXiv:2312.07551), a use of it.

    after every iteration    average <- decay average + (1 - decay) weights
    with a reset, if due     weights <- average, then average <- initial weights

The value head and the optimiser go on at a reset, which slows the drift from the reference without a KL
penalty.
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


class ElasticReset(MovingAverage):
    """The moving average of a policy's weights, and its resets; checkpoints hold the average only."""

    def __init__(self, weights: Sequence[nn.Parameter], *, every: int, decay: float = 0.9) -> None:
        """`weights` are the policy's, at their start and without the value head; resets write them."""
        super().__init__(weights, decay=decay)
        self.every = every
        self.initial = [weight.clone() for weight in self.average]

    @torch.no_grad()
    def end_iteration(self, iteration: int) -> None:
        """Move the average towards the weights; then reset the policy if it is due."""
        self.update()
        if (iteration + 1) % self.every == 0:
            for weight, average, initial in zip(self.weights, self.average, self.initial, strict=True):
                weight.copy_(average)
                average.copy_(initial)
