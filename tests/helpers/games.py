"""Made-up batches of games for algorithms, and runs on relay, whose best play is known.

Shapes: B games, T response tokens, N seats.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from cory.batch import Batch
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged

POISON = 9
"""Token ids and values where no token was chosen."""


def made_up_games(
    scores: Sequence[Sequence[float]],
    values: Sequence[Sequence[Sequence[float]]],
    *,
    payoffs: Sequence[Sequence[float]] | None = None,
) -> dict[str, Batch]:
    """One batch per seat from `scores` [N, B] and values [N, B, length]; all are paid the sum of the scores.

    A response has as many tokens as values.
    """
    scores_NB = torch.tensor(scores)
    payoffs_NB = scores_NB.sum(0).expand_as(scores_NB) if payoffs is None else torch.tensor(payoffs)
    batches = {}
    for i, of_seat in enumerate(values):
        lengths, B = [len(row) for row in of_seat], len(of_seat)
        T = max(lengths)
        values_BT = torch.tensor([[*row, *[float(POISON)] * (T - len(row))] for row in of_seat])
        same = dict.fromkeys(
            ("behaviour_logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "exact_kl_BT"),
            torch.zeros(B, T),
        )
        batches["pioneer_0" if i == 0 else f"observer_{i}"] = Batch(
            prompt_BP=torch.arange(1, B + 1)[:, None],
            prompt_length_B=torch.ones(B, dtype=torch.long),
            response_BT=torch.tensor([[1] * n + [POISON] * (T - n) for n in lengths]),
            response_length_B=torch.tensor(lengths),
            values_BT=values_BT,
            score_B=scores_NB[i],
            payoff_B=payoffs_NB[i],
            **same,
        )
    return batches


def relay_sums(*flags: str, iterations: int = 40) -> list[float]:
    """Sum of both seats' scores on relay in each iteration: 1.9 is the best.

    With a pioneer that maximises its own score it is 1.5 at most.
    """
    config = flagged("--task", "relay", "--max-response", "1", "1", "--batch", "96", *flags)
    config = replace(
        config,
        exchange=ExchangeConfig(every=0),
        kl=replace(config.kl, coef=0.0),
        learner=replace(config.learner, value_lr=0.1),
    )
    trainer = Trainer(config)
    return [
        sum(score for key, score in trainer.iterate(i).items() if key.endswith("/task_reward"))
        for i in range(iterations)
    ]
