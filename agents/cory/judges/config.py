"""Settings of judges."""

from dataclasses import dataclass
from typing import Literal

from cory.runtime.checks import check_fields


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """Settings of a classifier's score, and limits on user functions."""

    label: str = "positive"
    """The classifier label that is scored, by name or index."""

    output: Literal["log_odds", "logit", "probability"] = "log_odds"
    """Which output of the classifier is the score."""

    template: str = ""
    """The text that a classifier scores, with {query}, {response} (the scored one), {seat}, and the whole
    game's {response_0}, {response_1}, ...; empty = query and response."""

    timeout: float = 10.0
    """Seconds that one call of a user function may take. It should suffice for a whole batch, in evaluations
    of up to 256 responses: after a timeout the function is called again for every response."""

    memory_mb: int = 2048
    """Megabytes that the process of user functions may allocate; 0 = no limit, which functions that use a GPU
    need. macOS sets no such limit."""

    failed_score: float = 0.0
    """The score of a response on which a function fails. If scores may be negative, set it below all of them:
    failures must not be rewarded."""

    max_failures: float = 0.1
    """Share of a function's last 1,024 scores that may fail before the run stops; with 0 the first failure
    stops it."""

    def __post_init__(self) -> None:
        check_fields(self, "judge", rate="timeout", natural="memory_mb")
        check_fields(self, "judge", share="max_failures", finite="failed_score")
