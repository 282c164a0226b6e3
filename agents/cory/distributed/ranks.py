"""Several processes that train as one, started by `torchrun` or `accelerate launch`: ranks 0, 1, ...

Every rank plays its share of the games. The batches are then gathered whole, and every rank computes rewards
and advantages of all rows; of each learning pass a rank computes its share of the rows, and gradients are
summed. Rank 0 writes the run directory. One process is rank 0 of 1, for which everything here is free.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
P = ParamSpec("P")
PRINTED = "printed_by_rank_0"
"""An attribute of errors that all ranks raise, and of no others: whether this rank need not print it."""
TIMEOUT = timedelta(days=1)
"""The longest wait for another rank, as for its judge. A rank that has ended is noticed at once."""


class _Answer(NamedTuple):
    """What a rank brings to a meeting of all."""

    place: str
    value: Any
    error: Exception | None


def join() -> None:
    """Join the processes that a launcher started beside this one; nothing without a launcher.

    On accelerators each process of a machine takes the one with its local rank. ValueError for an environment
    that names several processes and not where they meet.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and there is no {', '.join(missing)}; start several "
            "processes with torchrun or accelerate launch, or unset WORLD_SIZE for one"
        )
    backends = "cpu:gloo"
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.accelerator.device_count():
            raise ValueError(
                f"process {local} of this machine finds {torch.accelerator.device_count()} devices of type "
                f"{device.type}; start as many processes as there are devices"
            )
        torch.accelerator.set_device_index(local)
        backends += f",{device.type}:{dist.get_default_backend_for_device(device)}"
    dist.init_process_group(backends, timeout=TIMEOUT)


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def count() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def share(rows: int) -> slice:
    """This rank's part of `rows` rows; the ranks' parts follow each other and differ by one row at most."""
    return slice(rank() * rows // count(), (rank() + 1) * rows // count())


@contextmanager
def raised_on_all(place: str) -> Iterator[None]:
    """A block whose exception on one rank is raised on all, by the `gather_object` that must follow."""
    try:
        yield
    except Exception as error:
        if count() > 1 and PRINTED not in error.__dict__:  # else all ranks have it already
            dist.all_gather_object([None] * count(), _Answer(place, None, _portable(error)))
            error.__dict__[PRINTED] = not is_main_process()
        raise


def gather_object(place: str, value: T) -> list[T]:
    """The values of all ranks, in their order.

    Every rank must call this at the same point of its work, which `place` names.
    """
    if count() == 1:
        return [value]
    answers: list[Any] = [None] * count()
    dist.all_gather_object(answers, _Answer(place, value, None))
    for other, answer in enumerate(answers):
        if answer.error is not None:
            raise _raised_elsewhere(answer.error, other)
        if answer.place != place:
            raise RuntimeError(f"rank {rank()} is at {place!r} and rank {other} at {answer.place!r}")
    return [answer.value for answer in answers]


def gather_results(place: str, make: Callable[[], T]) -> list[T]:
    """The results of `make()` on all ranks, in their order; what it raises on one rank is raised on all."""
    with raised_on_all(place):
        value = make()
    return gather_object(place, value)


def broadcast_object(place: str, make: Callable[[], T]) -> T:
    """The result of `make()`, which rank 0 alone calls; what it raises is raised on all."""
    return gather_results(place, lambda: make() if is_main_process() else None)[0]  # type: ignore[return-value]


def on_main_process(function: Callable[P, T]) -> Callable[P, T]:
    """`function` as one that rank 0 alone runs; all ranks must call it, and return or raise what it does."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return broadcast_object(function.__name__, lambda: function(*args, **kwargs))

    return call


def check_same(place: str, values: dict[str, Any]) -> None:
    """Raise ValueError on all ranks unless they hold the same values, naming those that differ."""
    everyone = gather_object(place, values)
    for other, theirs in enumerate(everyone):
        names = sorted(everyone[0].keys() | theirs.keys())
        if differing := [name for name in names if everyone[0].get(name) != theirs.get(name)]:
            pairs = (f"{name} is {everyone[0].get(name)!r} and {theirs.get(name)!r}" for name in differing)
            raise ValueError(f"{place} differ between ranks 0 and {other}: {'; '.join(pairs)}")


def add_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace the gradients of all ranks by their sum; a gradient that no rank has stays None."""
    if count() == 1:
        return
    parameters = list(parameters)
    there = gather_object("gradients", [parameter.grad is not None for parameter in parameters])
    pending = []
    for parameter, somewhere in zip(parameters, map(any, zip(*there, strict=True)), strict=True):
        if not somewhere:
            continue
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = gradient.contiguous()
        pending.append(dist.all_reduce(parameter.grad, async_op=True))
    for work in pending:
        work.wait()


def copy_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors with those of rank 0."""
    if count() == 1:
        return
    for tensor in tensors:
        dist.broadcast(tensor, src=0)


def checksums(tensors: Sequence[Tensor]) -> list[int]:
    """A number for the bits of each tensor."""
    return [int(torch.hash_tensor(tensor.detach()).view(torch.int64)) for tensor in tensors]


def _portable(error: Exception) -> Exception:
    """The error if another process can make it from what it holds.

    Else one with its text, of the builtin class by which runs decide whether they save.
    """
    try:
        made: Exception = ForkingPickler.loads(ForkingPickler.dumps(error))  # as sending does
        return made
    except Exception:  # a class, a lock or a function that only this process has
        pass
    kinds = (ValueError, OSError, ArithmeticError, MemoryError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), RuntimeError)
    return kind(f"{type(error).__name__}: {error}")


def _raised_elsewhere(error: Exception, other: int) -> Exception:
    """The error of another rank, which its text names."""
    error.__dict__[PRINTED] = not is_main_process()
    if error.args and isinstance(error.args[0], str):
        error.args = (f"rank {other}: {error.args[0]}", *error.args[1:])
    return error
