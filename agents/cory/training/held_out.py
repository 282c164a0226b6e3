"""Evaluations of a run's policies on held-out queries: standalone, in the seats of a game, in a few samples.

Shapes: B games, N seats.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cory.config.schema import Config
from cory.evaluation.evaluator import Responses, Split, evaluate_in_game, evaluate_standalone
from cory.policies.base import Policy
from cory.rollout.rollout import play
from cory.rollout.spec import RolloutSpec
from cory.runtime.clock import Clock
from cory.runtime.signals import Interrupt, never
from cory.training import metrics
from cory.training.factory import make_measures
from cory_env.tasks.base import Task
from cory_env.vector import VectorGame

SAMPLES = 8
"""Games that each evaluation writes to samples.jsonl."""


class HeldOut:
    """Evaluates policies on a task by a run's settings; each reference is evaluated once."""

    def __init__(self, config: Config, task: Task, game: VectorGame) -> None:
        self.config, self.task, self.game = config, task, game
        self.measures = make_measures(config)
        self.of_references: dict[tuple[Split, str], Responses] = {}

    def standalone(
        self,
        policies: Mapping[str, Policy],
        *,
        split: Split = "test",
        interrupt: Interrupt = never,
        on_policy: Callable[[str], None] = lambda name: None,
    ) -> dict[str, Responses]:
        """Responses of every policy to the query only.

        A reference's are also those of every policy that equals it. `on_policy` is called with each name
        before it begins.
        """
        found: dict[str, Responses] = {}
        for name, policy in policies.items():
            key, unmoved = (split, policy.reference.name), policy.equals_reference()
            if unmoved and key in self.of_references:
                found[name] = self.of_references[key]
                continue
            on_policy(policy.name)
            found[name] = evaluate_standalone(
                policy,
                self.task,
                self.config.evaluation,
                max_response=self.config.max_response,
                measures=self.measures,
                split=split,
                interrupt=interrupt,
            )
            if unmoved:
                self.of_references[key] = found[name]
        return found

    def team(
        self, policies_by_seat: Mapping[str, Policy], *, interrupt: Interrupt = never
    ) -> dict[str, Responses]:
        """Responses of every seat in games on the held-out queries."""
        config = self.config.evaluation
        return evaluate_in_game(
            self.game, policies_by_seat, config, measures=self.measures, interrupt=interrupt
        )

    def sample_rows(
        self,
        policies_by_seat: Mapping[str, Policy],
        seating: Mapping[str, str],
        responses: Mapping[str, Responses],
        *,
        reference: str,
    ) -> list[dict[str, Any]]:
        """A few held-out games, beside the standalone `responses` of each policy and of the `reference`."""
        count = min(SAMPLES, len(responses[reference].texts))
        queries = list(self.task.queries("test")[:count])
        spec = RolloutSpec.draw(
            queries,
            seats=self.game.seats,
            games_B=np.arange(count),
            key=(self.config.evaluation.seed, "samples", 0),
            max_response=self.config.max_response,
        )
        batches = play(self.game, policies_by_seat, spec, clock=Clock())
        token_kl = metrics.token_kl(batches, self.task.tokenizer)
        scores_BN, texts = self.game.scores(), {seat: self.game.texts(seat) for seat in self.game.seats}
        return [
            {
                "query": query.text,
                "reference": responses[reference].texts[i][0],
                **{seat: texts[seat][i] for seat in texts},
                "score": dict(zip(texts, scores_BN[i].tolist(), strict=True)),
                "eval": {name: found.texts[i][0] for name, found in responses.items()},
                "seating": dict(seating),
                **({"token_kl": token_kl[i]} if i < len(token_kl) else {}),
            }
            for i, query in enumerate(queries)
        ]
