"""A user function as a judge: a failure costs one score and is shown; too many failures end the run."""

from collections import deque
from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple

from cory.judges.config import JudgeConfig
from cory.judges.process_pool import Call, Pool, Source
from cory_env.grading.reward_functions import CaseJudge, Cases, Prompt

REMEMBERED = 1024
"""Number of latest scores over which the share of failures is computed."""

FEWEST = 32
"""Fewest scores it is computed over: one failure among the first few means little."""

SHOWN = 10
"""Failures kept until they are read."""


class Failure(NamedTuple):
    """A response that could not be scored."""

    judge: str
    why: str
    prompt: Prompt
    answer: str


class UserFunction(CaseJudge):
    """Calls a function in a worker process of `pool`.

    First with the whole batch; if that fails, with each response by itself, so that one bad response costs one score.
    """

    def __init__(self, source: Source, *, name: str, pool: Pool, config: JudgeConfig) -> None:
        self.source, self.name, self.pool, self.config = source, name, pool, config
        try:
            self.signature = pool.load(source)
        except ValueError as error:
            raise ValueError(f"judge {name!r} {error}") from error
        self.failed = self.retried = 0
        """Since the last call of `metrics`: responses without a score, batches repeated response by response."""
        self.failures: list[Failure] = []
        self._recent: deque[bool] = deque(maxlen=REMEMBERED)

    def judge(self, cases: Cases) -> list[float]:
        """One score per case; ValueError once the share of failures is above `max_failures`."""
        if not len(cases):
            return []
        scores: list[float] = []
        seen = min(len(self._recent) + len(cases), REMEMBERED)
        with closing(self._outcomes(cases)) as outcomes:  # a stopping run does not wait for the rest
            for i, outcome in enumerate(outcomes):
                self._recent.append(isinstance(outcome, str))
                if not isinstance(outcome, str):
                    scores.append(outcome)
                    continue
                scores.append(self.config.failed_score)
                failure = Failure(self.name, outcome, cases.prompts[i], cases.answers[i])
                self.failures += [failure] * (len(self.failures) < SHOWN)
                self.failed += 1
                if (failed := sum(self._recent)) > self.config.max_failures * max(seen, FEWEST):
                    raise ValueError(self._failure_text(failed, seen, failure))
        return scores

    def metrics(self) -> dict[str, float]:
        """`failures` and `retries` since the last call."""
        metrics = {"failures": float(self.failed), "retries": float(self.retried)}
        self.failed = self.retried = 0
        return metrics

    def _outcomes(self, cases: Cases) -> Generator[float | str, None, None]:
        whole = self.pool.call(self._call(cases))
        if not isinstance(whole, str):
            yield from whole
        elif len(cases) == 1:
            yield whole
        else:
            self.retried += 1
            calls = [self._call(cases[i : i + 1]) for i in range(len(cases))]
            with closing(self.pool.each(calls)) as each:
                for outcome in each:
                    yield outcome if isinstance(outcome, str) else outcome[0]

    def _call(self, cases: Cases) -> Call:
        try:
            positional, named = self.signature.arguments(cases)
        except ValueError as error:
            raise ValueError(f"judge {self.name!r}: {error}") from error
        return Call(self.source, positional, named, len(cases))

    def _failure_text(self, failed: int, seen: int, last: Failure) -> str:
        return (
            f"judge {self.name!r} failed on {failed} of {seen} responses, above judge.max_failures "
            f"{self.config.max_failures:g}. The last: {last.why}, for the response {last.answer[:200]!r} to "
            f"{str(last.prompt)[:200]!r}. Fix the function, or allow more failures with --judge.max-failures"
        )
