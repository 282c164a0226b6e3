"""Tasks that models with random weights earn unlike scores on."""

from collections.abc import Sequence

import numpy as np

from cory.distributed import ranks
from cory_env.tasks.echo import Task as Echo
from cory_env.types import Query, Response


class OddIds(Echo):
    """Queries of echo; the score is the share of a response's token ids that are odd."""

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        return [sum(token % 2 for token in response.ids) / len(response.ids) for response in responses]


class FailsOnRank1(OddIds):
    """A task whose score cannot be had on rank 1 in the second iteration."""

    batches = 0

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        self.batches += len(queries) == 16  # two seats of the 8 games of one of two ranks
        if ranks.rank() == 1 and self.batches == 2:
            raise ValueError("the judge has no answer")
        return super().score(queries, responses)


def above_mean(scores_BN: np.ndarray, iteration: int) -> np.ndarray:
    """A payoff: each score less the mean of all games."""
    return scores_BN - scores_BN.mean()


def broken_payoff(scores_BN: np.ndarray, iteration: int) -> np.ndarray:
    """A payoff that cannot be computed."""
    raise ValueError("no payoff today")
