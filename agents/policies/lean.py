"""Modules of a transformer that can do what they do in fewer passes over memory; equal to rounding.

Names, weights and the classes of transformers stay as they are.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D


def fuse_activations(model: Any) -> None:
    """Let one kernel compute GPT-2's GELU, which transformers writes as eight."""
    for module in model.modules():
        for name, part in module.named_children():
            if type(part) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh").train(part.training))


def add_biases_after(model: Any) -> None:
    """Let every projection with a bias add it to its product.

    `addmm` writes the bias out first and reads it back: up to a fifth of the time of a thin product.
    """
    for module in model.modules():
        if type(module) is Conv1D:
            module.__class__ = BiasAfterConv1D
        elif type(module) is nn.Linear and module.bias is not None:
            module.__class__ = BiasAfterLinear


class BiasAfterConv1D(Conv1D):
    """GPT-2's projection, its bias added in place where that is float32 on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).add_(self.bias) if adds_after(x) else super().forward(x)


class BiasAfterLinear(nn.Linear):
    """The same for `nn.Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.t()).add_(self.bias) if adds_after(x) else super().forward(x)


def adds_after(x: Tensor) -> bool:
    """In bfloat16 `addmm` is as fast and rounds once."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
