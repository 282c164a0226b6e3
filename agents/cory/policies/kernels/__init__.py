"""Everything that exists for CPU speed only, behind the setting `policy.kernels`.

`auto` installs these kernels on a CPU; with `plain`, and on every other device, a model's classes and
modules stay what the user handed in. Measured gains are in docs/performance.md.

Shapes: B rows, L tokens, K chosen tokens.
"""

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from cory.policies.kernels.fused_modules import fuse_gelu
from cory.policies.kernels.unpadding import TokenIndex, Unpadding


class CpuKernels:
    """The CPU kernels of one model, installed once when the policy is made."""

    def __init__(self, model: Any) -> None:
        self.fused = fuse_gelu(model)
        self._unpadding = Unpadding(model)

    def unpadded(self, real_BL: Tensor, predicting_K: Tensor) -> AbstractContextManager[None]:
        """Inside, per-token modules run on the real tokens of `real_BL` only.

        `predicting_K` indexes the tokens of the flattened mask whose hidden states are used.
        """
        return self._unpadding.using(TokenIndex.of(real_BL, predicting_K))

    def describe(self) -> str:
        """The kernels in use, for the log."""
        return f"unpadding of {self._unpadding.count} modules, {self.fused} fused GELUs, fused LM head"
