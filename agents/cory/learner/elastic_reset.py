"""Elastic Reset (arXiv:2312.07551): from time to time a policy returns to the moving average of its weights.

    after every iteration    average <- decay average + (1 - decay) policy
    every so many            policy <- average, then average <- initial model

The value head and the optimiser go on. It slows the drift from the reference without a KL penalty.
"""

from collections.abc import Sequence

import torch
from torch import nn

from cory.learner.moving_average import MovingAverage


class ElasticReset(MovingAverage):
    """The moving average of a policy's weights, and its resets.

    A checkpoint holds the average; the initial weights are those of the model that every run starts from.
    """

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
