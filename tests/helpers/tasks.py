"""Tasks that models with random weights earn unlike scores on."""

from collections.abc import Mapping, Sequence

import numpy as np

from cory.distributed import ranks
from cory_env.tasks.echo import Task as Echo
from cory_env.types import Query, Response


class OddIds(Echo):
    """Queries of echo; the score is the share of a response's token ids that are odd."""

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        return [sum(token % 2 for token in response.ids) / len(response.ids) for response in responses]


class OddGames(OddIds):
    """In a game a seat scores the odd ids of the other seats' responses, and the longest is measured."""

    def score_games(
        self, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
    ) -> list[list[int]]:
        odd_NB = [
            [sum(i % 2 for i in response.ids) for response in of_seat] for of_seat in responses.values()
        ]
        return [[sum(odd_N) - odd for odd in odd_N] for odd_N in zip(*odd_NB, strict=True)]

    def measure_games(
        self, queries: Sequence[Query], responses: Mapping[str, Sequence[Response]]
    ) -> dict[str, dict[str, list[int]]]:
        games = zip(*responses.values(), strict=True)
        return {"observer_1": {"longest": [max(len(response.ids) for response in game) for game in games]}}


class OddTeams(OddGames):
    """A task that scores no response alone."""

    team_only = "nobody else is odd"

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        raise AssertionError("a response was scored alone")


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
