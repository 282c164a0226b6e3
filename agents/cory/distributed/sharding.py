"""Weights shared out among ranks (FSDP2): each holds a part of every layer, and all of one as it computes.

In a learning pass layers are gathered one by one and their gradients are summed over the ranks, so all ranks
must take the same passes. Where no gradient is taken the whole model is gathered once (`Shards.gathered`):
ranks may then decode responses of unlike length. Embeddings, final norm, head, value head and adapters are
whole on every rank: the loss takes the gradient of the head by itself (`cory.policies.chunked_loss`).
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from cory.distributed import ranks


class Shards:
    """The shared-out layers of one transformer."""

    def __init__(
        self, trunk: nn.Module, layers: Sequence[nn.Module], *, whole: Iterable[nn.Parameter]
    ) -> None:
        """Share out the parameters of `layers` of `trunk` but for those that stay `whole`."""
        device = next(trunk.parameters()).device
        mesh = init_device_mesh(device.type, (ranks.count(),))
        kept = set(whole)
        for layer in layers:
            fully_shard(layer, mesh=mesh, ignored_params=kept)
        fully_shard(trunk, mesh=mesh, ignored_params={p for p in trunk.parameters() if not is_shard(p)})
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        self.modules = [module for module in trunk.modules() if isinstance(module, FSDPModule)]
        for module in self.modules:
            module.set_gradient_divide_factor(1.0)  # losses are divided by the tokens of all ranks
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no scaled sums
        self.depth = 0

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """All weights are whole on every rank inside; what is written to them there is lost.

        All ranks must enter together; what one has raised meanwhile is raised on all.
        """
        if self.depth == 0:
            ranks.gather_object("the weights", None)
        self.depth += 1
        try:
            if self.depth == 1:
                for module in self.modules:
                    module.set_reshard_after_forward(False, recurse=False)
                    module.unshard()
            yield
        finally:
            self.depth -= 1
            if self.depth == 0:
                for module in self.modules:
                    module.reshard()
                    module.set_reshard_after_forward(True, recurse=False)


def is_shard(tensor: Tensor) -> bool:
    """Whether this rank holds only a part of `tensor`."""
    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, gathered into main memory if it is shared out; all ranks must call it."""
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, given: Tensor) -> Tensor:
    """`given`, which every rank has whole, shared out as `own` is."""
    if not isinstance(tensor, DTensor) or given.shape != tensor.shape:
        return given
    return distribute_tensor(
        given.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None
    )


def unshared(weights: Iterable[Tensor], optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those weights, and moments of the optimiser, that every rank has whole."""
    moments = (value for state in optimizer.state.values() for value in state.values())
    tensors = (torch.as_tensor(value) for value in (*weights, *moments))
    return [tensor for tensor in tensors if not is_shard(tensor)]


@contextmanager
def whole_moments(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """The moments are whole inside, on every rank, in main memory; all ranks must enter together."""
    shared = [
        (state, {key: value for key, value in state.items() if isinstance(value, Tensor) and is_shard(value)})
        for state in optimizer.state.values()
    ]
    try:
        for state, moments in shared:
            state.update({key: whole(moment) for key, moment in moments.items()})
        yield
    finally:
        for state, moments in shared:
            state.update(moments)


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients, those of which ranks hold parts included."""
    parts = [tensor for tensor in gradients if not is_shard(tensor)]
    shards = [tensor.to_local() for tensor in gradients if isinstance(tensor, DTensor)]
    norm = torch.nn.utils.get_total_norm(parts)
    if not shards:
        return norm
    squared = torch.nn.utils.get_total_norm(shards).square()
    dist.all_reduce(squared)
    return (norm.square().to(squared) + squared).sqrt()


def clip(parameters: Sequence[nn.Parameter], most: float, norm: Tensor) -> None:
    """Scale the gradients, whose norm is `norm`, down to a norm of `most`."""
    torch.nn.utils.clip_grads_with_norm_([p for p in parameters if not is_shard(p)], most, norm)
    for gradient in (p.grad for p in parameters if is_shard(p)):
        if isinstance(gradient, DTensor):
            gradient.to_local().mul_((most / (norm + 1e-6)).clamp(max=1.0))


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """`model.state_dict()` where all weights are gathered: that method itself would share them out again."""
    buffers = {
        f"{place}.{name}".lstrip("."): buffer
        for place, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }
    return {**dict(model.named_parameters(remove_duplicate=False)), **buffers}


def load_state(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """`model.load_state_dict` of whole weights, into parts where the model is shared out."""
    weights = model.state_dict()
    model.load_state_dict({name: like(weights.get(name, tensor), tensor) for name, tensor in saved.items()})
