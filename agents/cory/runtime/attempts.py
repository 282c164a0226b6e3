"""Work that is done again in smaller passes when an accelerator's memory runs out."""

import gc

import torch

from cory.runtime.device import empty_cache
from cory.runtime.memory import MemoryBudget

REMEDIES = (
    "set policy.gradient_checkpointing, policy.kind lora_team, policy.frozen bfloat16, lora.four_bit yes or "
    "learner.optimizer adam8bit, raise learner.microbatches, lower max_response, or take a smaller model"
)


class NoSmallerPassError(MemoryError):
    """Memory ran out in work whose passes can be no smaller."""


class Attempts:
    """Attempts at some work, in smaller passes each time.

    `while attempts.should_retry(): with attempts: work`.

    A block that runs out of an accelerator's memory must do all its work again from the start. The plain loop
    leaves no frames of its own between the work and its caller.
    """

    def __init__(self, work: str, *, budget: MemoryBudget, device: torch.device, alone: bool = True) -> None:
        """Only one attempt unless the process is `alone`: others wait for its part of the weights."""
        self.work, self.budget, self.device, self.alone = work, budget, device, alone
        self.unfinished = True
        self.reason: str | None = None
        """Why the last attempt failed."""

    def should_retry(self) -> bool:
        """Whether there is an attempt to make; before another one the budget is halved.

        NoSmallerPassError, naming the work and settings that help, if passes can be no smaller.
        """
        if self.unfinished and self.reason is not None:
            gc.collect()  # tensors of the frames that the error has left
            empty_cache(self.device)
            if not self.alone or not self.budget.halve():
                raise NoSmallerPassError(
                    f"memory ran out {self.work}, and passes can be no smaller ({self.reason[:120]}); "
                    f"{REMEDIES}"
                )
        return self.unfinished

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.unfinished = isinstance(error, torch.OutOfMemoryError)
        self.reason = str(error).partition("\n")[0]
        return self.unfinished
