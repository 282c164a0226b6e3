"""Settings of held-out evaluations and sizes of probes."""

from dataclasses import dataclass

from cory.generation import SamplingStrategy
from cory.rng import check_seed
from cory.runtime.checks import check_fields


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
    written to average/ (not of tables); `learner.ema` does both with their moving averages, also of one
    policy."""

    team: bool = False
    """Whether games of all seats on the held-out queries are evaluated too, as `team`: what the policies do
    together."""

    threshold: float | None = None
    """The task reward from which a response counts as correct; none = the task says it."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation", natural="every", count="queries samples", finite="threshold")
        if self.sampling == "greedy" and self.samples > 1:
            raise ValueError(
                f"evaluation.samples is {self.samples} and greedy sampling gives the same response each "
                "time; give 1, or another evaluation.sampling"
            )


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """Size and random seed of a probe."""

    queries: int = 64
    """Held-out queries."""

    pioneers: int = 4
    """Pioneer responses to each query."""

    observers: int = 4
    """Observer responses to each pioneer response."""

    seed: int = 0
    """Random seed of the games; the same for all pairs of policies, so that comparisons are paired."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("queries", "pioneers", "observers"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} is {getattr(self, name)}; a variance needs 2 or more")
