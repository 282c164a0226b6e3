"""User function as a judge: a failure costs one score and is logged; too many failures end the run."""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from cory.judges.config import JudgeConfig
from cory.judges.supervisor import Outcome, Source, Supervisor
from cory_env.grading.reward_functions import CaseJudge, Cases

FAILURE_WINDOW = 1024
"""Number of latest scores over which the share of failures is computed."""

MIN_SCORES = 32
"""The share is computed as if there were at least so many scores: one early failure means little."""

WRONG_NUMBER = re.compile(r"returned \d+(?: or more)? scores for \d+ responses")
"""What a worker says of a call that returned too few or too many."""

NO_LIST = re.compile(r"returned .* for \d+ responses; return one number for each", re.DOTALL)
"""What a worker says of a call that returned no list of scores, or one of another length."""

MAX_LOGGED = 10
"""Failures that are stored until they are logged."""


class UserFunction(CaseJudge):
    """Calls a function in the worker process of `supervisor`.

    The whole batch is passed in one call; if that fails, every response is passed in a call of its own, so
    that one bad response costs one score.
    """

    def __init__(self, source: Source, *, name: str, supervisor: Supervisor, config: JudgeConfig) -> None:
        self.source, self.name, self.supervisor, self.config = source, name, supervisor, config
        try:
            self.signature, self.correct_from, self.team_only = supervisor.load(source)
        except ValueError as error:
            hint = ""
            if source[1].startswith("__main__:") or "@" in source[1]:
                hint = "; it belonged to a session that has ended: name it again as module:function"
            raise ValueError(f"judge {name!r} {error}{hint}") from error
        self.failed = self.retried = 0
        """Responses without a score, and batches that were repeated, since the last call of `metrics`."""
        self.failures: list[dict[str, Any]] = []
        """Rows of samples.jsonl."""
        self._recent: deque[bool] = deque(maxlen=FAILURE_WINDOW)

    @property
    def reads_games(self) -> bool:
        """Whether the function names `seat` or `responses`."""
        return bool(self.signature.of_games)

    def judge(self, cases: Cases) -> list[float]:
        """Return one score per case; ValueError once the share of failures is above `max_failures`."""
        if not len(cases):
            return []
        scores: list[float] = []
        total = min(len(self._recent) + len(cases), FAILURE_WINDOW)
        for i, outcome in enumerate(self._outcomes(cases)):
            self._recent.append(isinstance(outcome, str))
            if not isinstance(outcome, str):
                scores.append(outcome)
                continue
            scores.append(self.config.failed_score)
            prompt, response = cases.prompts[i], cases.answers[i]
            query = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
            if len(self.failures) < MAX_LOGGED:
                row = {"query": query, "response": response, "judge": self.name, "failure": outcome}
                self.failures.append(row)
            self.failed += 1
            if (failed := sum(self._recent)) > self.config.max_failures * max(total, MIN_SCORES):
                raise ValueError(
                    f"judge {self.name!r} failed on {failed} of {total} responses, above judge.max_failures "
                    f"{self.config.max_failures:g}. The last: {outcome}, for the response {response[:200]!r} "
                    f"to {str(prompt)[:200]!r}. Fix the function, or allow more failures with "
                    "--judge.max-failures"
                )
        return scores

    def check(self, cases: Cases) -> None:
        """Call the function once; ValueError if it cannot be called, or returns no list of numbers."""
        outcome = self._call(cases)
        if isinstance(outcome, str) and (problem := NO_LIST.search(outcome)):
            raise ValueError(f"judge {self.name!r} {problem[0]}")
        if all(isinstance(score, str) and ", beyond" in score for score in outcome):
            raise ValueError(f"judge {self.name!r} {outcome[0]}; return smaller numbers")

    def metrics(self) -> dict[str, float]:
        """Return `failures` and `retries` since the last call."""
        metrics = {"failures": float(self.failed), "retries": float(self.retried)}
        self.failed = self.retried = 0
        return metrics

    def _outcomes(self, cases: Cases) -> Iterator[float | str]:
        """Yield a score, or the reason why there is none, for each case."""
        whole = self._call(cases)
        if not isinstance(whole, str):
            yield from whole
        elif len(cases) == 1:
            yield whole
        else:
            self.retried += 1
            sound = True
            for i in range(len(cases)):
                outcome = self._call(cases[i : i + 1])
                sound = sound and not isinstance(outcome, str)
                yield outcome if isinstance(outcome, str) else outcome[0]
            if sound and (number := WRONG_NUMBER.search(whole)):
                raise ValueError(
                    f"judge {self.name!r} {number[0]}, and one for each response by itself; return one "
                    "score for each response of a call"
                )

    def _call(self, cases: Cases) -> Outcome:
        try:
            positional, named = self.signature.arguments(cases)
        except ValueError as error:
            raise ValueError(f"judge {self.name!r}: {error}") from error
        return self.supervisor.call(self.source, positional, named, len(cases))
