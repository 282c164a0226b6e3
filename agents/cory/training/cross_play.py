"""Cross-play: every policy of several targets as the pioneer of every one, on the same queries.

Shapes: Q queries, N seats.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from cory.evaluation.bootstrap import as_json, estimates
from cory.evaluation.evaluator import evaluate_in_game
from cory.evaluation.external import Player
from cory.judges.weighted_sum import closing, of_task
from cory.policies.causal_lm import check_same_tokenizer
from cory.training.evaluate import check_comparable, conditions, edited, load_target
from cory.training.factory import make_game
from cory.training.targets import Target, labels, trained_in

SUM = "sum of the scores"
"""The collective reward of a pair, beside the scores of its two seats."""


def cross_play(
    targets: Sequence[Target], *, on_progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Play every ordered pair of the targets' policies; the result as JSON.

    `pairs` has the score of each seat and their sum with 95 % intervals over queries; `kind` is `itself` (one
    policy in both seats), `partners` (two of a run or another target) or `strangers`. `means` has the mean
    sum of each kind, and that of the partners minus that of the strangers, query by query. ValueError for
    games of other than two seats, and for targets that are evaluated unlike each other.
    """
    check_comparable(targets)
    for target in targets:
        if target.config.seats != 2:
            raise ValueError(
                f"{target.name} is a game of {target.config.seats} seats, and cross-play pairs a pioneer "
                "with an observer; give --seats 2"
            )
        ours, theirs = targets[0].config.sees, target.config.sees
        if ours != theirs:
            raise ValueError(
                f"{targets[0].name} and {target.name} do not play the same game: sees is {ours} and "
                f"{theirs}; give --sees, it holds for every target"
            )
    names = labels([target.name for target in targets])
    policies: dict[str, Player] = {}
    origin: dict[str, str] = {}
    with ExitStack() as stack:
        for target, label in zip(targets, names, strict=True):
            on_progress(f"loading {label}")
            evaluated = load_target(target)
            stack.enter_context(closing(evaluated.task))
            for name, policy in evaluated.policies.items():
                shown = name if len(targets) == 1 else f"{label}:{name}"
                policies[shown] = policy
                origin[shown] = trained_in(target.folders.get(name, "")) or label
        check_same_tokenizer(policies.values())
        config = targets[-1].config
        game = make_game(config, evaluated.task, policies)
        sums: dict[str, list[np.ndarray]] = {"itself": [], "partners": [], "strangers": []}
        pairs = []
        for pioneer, observer in product(policies, policies):
            on_progress(f"{pioneer} -> {observer}")
            seated = dict(zip(game.seats, (policies[pioneer], policies[observer]), strict=True))
            responses = evaluate_in_game(game, seated, config.evaluation, measures={})
            score_NQ = np.stack([responses[seat].arrays["task_reward"].mean(1) for seat in game.seats])
            same = origin[pioneer] == origin[observer]
            kind = "itself" if pioneer == observer else "partners" if same else "strangers"
            sums[kind].append(score_NQ.sum(0))
            values = estimates({**dict(zip(game.seats, score_NQ, strict=True)), SUM: score_NQ.sum(0)})
            pair = {"pioneer": pioneer, "observer": observer, "kind": kind, "scores": as_json(values)}
            pairs.append(pair)
        failures = of_task(evaluated.task).failures()
    sum_Q = {kind: np.mean(of_kind, axis=0) for kind, of_kind in sums.items() if of_kind}
    if {"partners", "strangers"} <= sum_Q.keys():
        sum_Q["partners minus strangers"] = sum_Q["partners"] - sum_Q["strangers"]
    return {
        "means": as_json(estimates(sum_Q)),
        **conditions(config, responses[game.seats[0]].queries),
        "targets": {label: target.name for label, target in zip(names, targets, strict=True)},
        "policies": list(policies),
        "pairs": pairs,
        "failures": failures,
        "edited": [line for target in targets for line in edited(target)],
    }
