"""Settings of judges."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """The score of a classifier, and limits on user functions."""

    label: str = "positive"
    """The classifier label that is scored, by name or index."""

    output: Literal["log_odds", "logit", "probability"] = "log_odds"
    """Which of its outputs is the score."""

    reads: Literal["whole", "completion"] = "whole"
    """What judges of texts read: query and response as one text, or the response only."""

    timeout: float = 10.0
    """Seconds that one call of a function may take. Give enough for a whole batch: if that takes longer, the function is
    called again for every response."""

    memory_mb: int = 2048
    """Megabytes of address space that each process of a function may have (on Linux); 0 = no limit, which a
    function on a GPU needs."""

    workers: int = 2
    """Largest number of processes in which functions run."""

    failed_score: float = 0.0
    """The score of a response on which a function fails. If scores may be negative, give one below them all: a failure
    must not pay."""

    max_failures: float = 0.1
    """Share of a function's last 1,024 scores that may fail before the run stops; 0 = none may."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("timeout", self.timeout, 0.001, 1e6),
            ("memory_mb", self.memory_mb, 0, 2**32),
            ("workers", self.workers, 1, 64),
            ("max_failures", self.max_failures, 0, 1),
        ):
            if not low <= value <= high:
                raise ValueError(f"judge.{name} is {value}; give a number from {low:g} to {high:g}")
        if not math.isfinite(self.failed_score):
            raise ValueError(f"judge.failed_score is {self.failed_score}; give a finite number")
