"""A device whose memory does not suffice for passes above a size."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.table import TablePolicy


def run_out() -> None:
    """As torch does on CUDA."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nand more")


@contextmanager
def rows_at_most(rows: int, *, after: int = 0) -> Iterator[list[int]]:
    """Memory runs out in passes of language models above `rows` rows, but for the first `after` passes.

    The list receives the rows of every pass, also of those that fail.
    """
    passes: list[int] = []
    trunk = CausalLMPolicy.trunk

    def short(self, **inputs):
        passes.append(len(inputs["input_ids"]))
        if len(inputs["input_ids"]) > rows and len(passes) > after:
            run_out()
        return trunk(self, **inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CausalLMPolicy, "trunk", short)
        yield passes


@contextmanager
def logits_at_most(rows: int, *, learning: bool = False) -> Iterator[None]:
    """Memory runs out where a table computes the logits of more than `rows` tokens at once.

    With `learning`, only where gradients are taken.
    """
    logits = TablePolicy.logits

    def short(self, state_KD):
        if len(state_KD) > rows and (torch.is_grad_enabled() or not learning):
            run_out()
        return logits(self, state_KD)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePolicy, "logits", short)
        yield
