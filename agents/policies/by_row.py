"""One pass of a backbone for the rows of several policies: each token has the adapters of its row's policy.

The factors of all adapters stand side by side, so that two products serve them all; between the two, what is
not a token's own is multiplied by 0.

Shapes: A policies, B rows, L tokens of the longest, X tokens that a layer reads, D width, R ranks of all
adapters together.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor
from torch.nn.functional import linear

from agents.policies.adapters import Switch
from agents.policies.narrow import TokenWise, Wanted


@contextmanager
def acting(
    model: Any,
    switch: Switch,
    adapters: Sequence[Sequence[str]],
    owner_BL: Tensor,
    wanted: Wanted,
    modules: TokenWise,
) -> Iterator[None]:
    """Inside, the adapters `adapters[a]` act on the tokens whose owner is `a`, and no others do.

    Enter it before `narrowed`, which is given the same tokens and modules: a layer is then seen as it reads,
    all tokens or those that were picked for it.
    """
    owner_X = owner_BL.flatten()
    read, last = owner_X[wanted.read_N][None], owner_X[wanted.last_N][None]
    behind = {part for module in modules.last for part in module.modules()}
    own = Own(adapters)
    with ExitStack() as around:
        around.enter_context(switch.on(()))
        for layer in model.modules():
            if isinstance(layer, LoraLayer):
                owners = (owner_BL, last if layer in behind else read)
                around.callback(layer.register_forward_hook(partial(add, own, owners)).remove)
        yield


def add(
    own: "Own", owners: Sequence[Tensor], layer: Any, given: tuple[Tensor, ...], out_XD: Tensor
) -> Tensor:
    """`out_XD`, and what the adapters of each token's owner make of what the layer was given."""
    names = tuple(name for name in own.names if name in layer.lora_A)
    if not names:
        return out_XD
    owner_X = next(owner for owner in owners if owner.shape == out_XD.shape[:-1])
    down_RD = torch.cat([layer.lora_A[name].weight for name in names])
    up_DR = torch.cat([layer.lora_B[name].weight * layer.scaling[name] for name in names], dim=1)
    ranks = tuple(len(layer.lora_A[name].weight) for name in names)
    low_XR = linear(given[0].to(down_RD.dtype), down_RD)
    return (out_XD + linear(low_XR * own.ranks(names, ranks, owner_X), up_DR)).to(out_XD.dtype)


class Own:
    """Which ranks of adapters that stand side by side are a token's own."""

    def __init__(self, adapters: Sequence[Sequence[str]]) -> None:
        self.adapters = adapters
        self.names = tuple(dict.fromkeys(name for some in adapters for name in some))
        self._known: dict[tuple[Any, ...], Tensor] = {}

    def ranks(self, names: tuple[str, ...], ranks: tuple[int, ...], owner_X: Tensor) -> Tensor:
        """True where they are [X, R]; made once for all layers that are alike."""
        key = names, ranks, id(owner_X)
        if key not in self._known:
            columns = [name for name, rank in zip(names, ranks, strict=True) for _ in range(rank)]
            own_AR = torch.tensor([[name in some for name in columns] for some in self.adapters])
            self._known[key] = own_AR.to(owner_X.device)[owner_X]
        return self._known[key]
