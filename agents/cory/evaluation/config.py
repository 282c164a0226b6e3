"""Settings of held-out evaluations."""

from dataclasses import dataclass
from typing import get_args

from cory.generation import SamplingStrategy
from cory.runtime.checks import check_choices, check_fields


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Schedule, size and sampling of held-out evaluations."""

    every: int = 10
    """Iterations between evaluations during training; 0 = only before and after."""

    queries: int = 512
    """Held-out queries per evaluation; the same for all, since distinct-n falls as texts are added."""

    samples: int = 1
    """Responses to each query; pass@k is reported for k up to this."""

    sampling: SamplingStrategy = "own"
    """`own` samples the policy's distribution; `paper` with repetition penalty 1.1, then top-k 10, then top-p
    0.7; `greedy` takes the likeliest token. KL and perplexity are of the policy's own in any case."""

    average: bool = False
    """Whether the mean of the weights of two or more policies is evaluated too, as `average`, and in the end
    written to average/; `learner.ema` does both with their moving averages, also of one policy."""

    team: bool = False
    """Whether games of all seats on the held-out queries are evaluated too, as `team`: what the policies do
    together."""

    threshold: float | None = None
    """The task reward from which a response counts as correct; none = the task says it."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation", natural="every", count="queries samples")
        check_choices(self, "evaluation", sampling=get_args(SamplingStrategy))
        if self.sampling == "greedy" and self.samples > 1:
            raise ValueError(
                f"evaluation.samples is {self.samples} and greedy sampling gives the same response each "
                "time; give 1, or another evaluation.sampling"
            )
