"""Evaluations of a trainer's policies on held-out queries: standalone, in the seats of a game, as samples.

Shapes: B games, N seats.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from cory.evaluation import averaging
from cory.evaluation.evaluator import SEED, Responses, Split, evaluate_in_game, evaluate_standalone
from cory.policies.base import Policy
from cory.rollout.rollout import RolloutSpec, play
from cory.runtime.clock import Clock
from cory.training import metrics
from cory.training.factory import make_measures
from cory.training.trainer import Trainer
from cory_env.tasks.base import team_only, validation_queries

OnPolicy = Callable[[str], None]
"""Called with the name of each policy before it is evaluated."""

SAMPLES = 8
"""Games that each evaluation writes to samples.jsonl."""


class HeldOut:
    """Evaluates a trainer's policies by its settings; each reference is evaluated once."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.measures = make_measures(trainer.config)
        self._of_references: dict[tuple[Split, str], Responses] = {}

    def evaluate_references(self, on_policy: OnPolicy = lambda name: None) -> dict[str, Responses]:
        """Responses of the references to test queries, computed once; none for teams only."""
        if team_only(self.trainer.task):
            return {}
        references: dict[str, Policy] = {one.name: one for one in self.trainer.references.values()}
        if len(references) > 1:
            references = {f"reference_{name}": one for name, one in self.trainer.references.items()}
        return self._standalone(references, split="test", on_policy=on_policy)

    def evaluate(self, on_policy: OnPolicy = lambda name: None) -> dict[str, Responses]:
        """Responses of references, policies and their average to test queries; none for teams only."""
        if not (evaluated := self.evaluate_references(on_policy)):
            return {}
        trainer, evaluate = self.trainer, partial(self._standalone, split="test", on_policy=on_policy)
        evaluated |= evaluate(trainer.policies)
        if trainer.config.averages:
            with averaged(trainer) as average:
                evaluated |= evaluate({averaging.NAME: average})
        return evaluated

    def validate(self, on_policy: OnPolicy = lambda name: None) -> dict[str, Responses]:
        """Responses of every policy to the validation queries, for choices; empty where there are none."""
        if not validation_count(self.trainer):
            return {}
        return self._standalone(self.trainer.policies, split="validation", on_policy=on_policy)

    def _standalone(
        self, policies: Mapping[str, Policy], *, split: Split, on_policy: OnPolicy
    ) -> dict[str, Responses]:
        responses: dict[str, Responses] = {}
        for name, policy in policies.items():
            key, unmoved = (split, policy.reference.name), policy.equals_reference()
            if unmoved and key in self._of_references:
                responses[name] = self._of_references[key]
                continue
            on_policy(policy.name)
            responses[name] = evaluate_standalone(
                policy,
                self.trainer.task,
                self.trainer.config.evaluation,
                max_response=self.trainer.config.max_response,
                measures=self.measures,
                split=split,
            )
            if unmoved:
                self._of_references[key] = responses[name]
        return responses

    def play_as_team(self, iteration: int) -> dict[str, Responses]:
        """Responses of every seat in games on the test queries, seated as in `iteration`."""
        trainer = self.trainer
        trainer.set_game(iteration)
        seated = {**trainer.team(iteration).policies, **trainer.players}
        return evaluate_in_game(trainer.game, seated, trainer.config.evaluation, measures=self.measures)

    def sample_rows(self, iteration: int, responses: Mapping[str, Responses]) -> list[dict[str, Any]]:
        """A few held-out games, beside the standalone `responses` of the policies and of the reference."""
        trainer, config, game = self.trainer, self.trainer.config, self.trainer.game
        trainer.set_game(iteration)
        team = trainer.team(iteration)
        queries = list(trainer.task.queries("test")[: min(SAMPLES, config.evaluation.queries)])
        count = len(queries)
        spec = RolloutSpec.draw(
            queries,
            seats=game.seats,
            games_B=np.arange(count),
            key=(SEED, "samples", 0),
            max_response=config.max_response,
        )
        batches = play(game, team.policies, spec, clock=Clock(), players=trainer.players)
        scored = {seat: batches[seat] for seat in team.seating}
        token_kl = metrics.token_kl(scored, trainer.task.tokenizer)
        scores_BN, texts = game.scores(), {seat: game.texts(seat) for seat in game.seats}
        return [
            {
                "query": query.text,
                **{seat: texts[seat][i] for seat in texts},
                "score": dict(zip(texts, scores_BN[i].tolist(), strict=True)),
                "eval": {name: alone.texts[i][0] for name, alone in responses.items()},
                "eval_score": {
                    name: float(alone.arrays["task_reward"][i, 0]) for name, alone in responses.items()
                },
                "kl": {
                    seat: round(float(batch.exact_kl_BT[i][batch.mask_BT[i]].sum()), 4)
                    for seat, batch in scored.items()
                },
                "seating": trainer.names(iteration),
                **({"token_kl": token_kl[i]} if i < len(token_kl) else {}),
            }
            for i, query in enumerate(queries)
        ]


@contextmanager
def averaged(trainer: Trainer) -> Iterator[Policy]:
    """The mean of the policies' weights, or of their moving averages; their own are back after it."""
    moving = [one.average for one in trainer.state.averages()["ema"].values()]
    with averaging.averaged(list(trainer.policies.values()), columns=moving) as average:
        yield average
    trainer.note_fingerprints()  # the weights were away, and are back


def validation_count(trainer: Trainer) -> int:
    """Validation queries that choices are made on, by standalone responses."""
    if team_only(trainer.task):
        return 0
    return min(len(validation_queries(trainer.task)), trainer.config.evaluation.queries)
