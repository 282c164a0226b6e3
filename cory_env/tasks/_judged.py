"""Base class of tasks whose scores are those of a judge."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cory_env.grading.reward_functions import Cases, Judge, ask, reads_games
from cory_env.tasks.base import Pool, game_cases
from cory_env.types import Query, Response


class Judged(Pool):
    """The judge scores response by response, or whole games if it asks for them."""

    judge: Judge

    @abstractmethod
    def cases(self, queries: Sequence[Query], responses: Sequence[Response]) -> Cases:
        """Return what the judge is given for these responses."""

    @property
    def correct_from(self) -> float | None:
        """The judge's `correct_from`, if it tells right from wrong."""
        return getattr(self.judge, "correct_from", None)

    @property
    def team_only(self) -> str:
        """The judge's `team_only`: why it scores no response alone."""
        return str(getattr(self.judge, "team_only", ""))

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> Sequence[float]:
        """Return the judge's scores of the whole batch, from one call."""
        return ask(self.judge, self.cases(queries, responses))

    @property
    def score_games(self) -> Callable[..., Any] | None:
        """The scores of whole games, [B, N], by a judge that reads them; else None."""
        return self._score_games if reads_games(self.judge) else None

    def _score_games(
        self, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
    ) -> list[list[float]]:
        scores = ask(self.judge, game_cases(self.cases, queries, responses))
        if len(scores) != len(queries) * len(responses):
            raise ValueError(
                f"the judge returned {len(scores)} scores for {len(queries) * len(responses)} responses; "
                "return one number each"
            )
        return [list(scores[b :: len(queries)]) for b in range(len(queries))]
