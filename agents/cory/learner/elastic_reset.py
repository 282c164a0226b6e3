"""Elastic Reset (arXiv:2312.07551): from time to time a policy returns to the moving average of its weights.

    after every iteration    average <- decay average + (1 - decay) policy
    every so many            policy <- average, then average <- initial model

The value head and the optimiser go on. It slows the drift from the reference without a KL penalty.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class ElasticReset:
    """The moving average of a policy's weights, and its resets."""

    def __init__(self, weights: Sequence[nn.Parameter], *, every: int, decay: float) -> None:
        """`weights` are the policy's, at their start: without the value head."""
        self.weights, self.every, self.decay = list(weights), every, decay
        self.initial = [weight.detach().clone() for weight in self.weights]
        self.average = [weight.clone() for weight in self.initial]

    @torch.no_grad()
    def end_iteration(self, iteration: int) -> None:
        """Move the average towards the weights; then reset the policy if it is due."""
        for weight, average, initial in zip(self.weights, self.average, self.initial, strict=True):
            average.lerp_(weight, 1 - self.decay)
            if (iteration + 1) % self.every == 0:
                weight.copy_(average)
                average.copy_(initial)

    def state_dict(self) -> dict[str, Any]:
        """The average; the initial weights are those of the model that every run starts from."""
        return {"average": list(self.average)}

    @torch.no_grad()
    def load_state_dict(self, content: Mapping[str, Sequence[Tensor]]) -> None:
        """Load what `state_dict` returned."""
        for average, saved in zip(self.average, content["average"], strict=True):
            average.copy_(saved)
