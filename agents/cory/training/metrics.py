"""Scalar metrics of an iteration and of an evaluation, keyed seat/policy/quantity.

Shapes: B games, T response tokens.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from cory.batch import Batch
from cory.config.schema import Config
from cory.distributed import ranks
from cory.evaluation.evaluator import Responses
from cory.functional.advantage import Advantage
from cory.functional.value_fit import explained_variance
from cory.learner.team import Team
from cory.runtime.checks import check_new
from cory_env.tasks.base import MeasuresGames
from cory_env.tokenizer import Tokenizer
from cory_env.types import Response
from cory_env.vector import VectorGame


def iteration_metrics(
    team: Team,
    batches: Mapping[str, Batch],
    advantages: Mapping[str, Advantage],
    updates: Mapping[str, Mapping[str, float]],
    seconds: Mapping[str, float],
    config: Config,
) -> dict[str, float]:
    """Metrics of each seat, of the update of the policy that sits there, and of the clock's phases."""
    metrics: dict[str, float] = {}
    group = team.algorithm.needs(team.options).group
    for seat, name in team.seating.items():
        policy, batch = team.learners[name].policy, batches[seat]
        seat_metrics = batch_metrics(batch, kl_coef=config.kl.coef, eos=policy.eos)
        seat_metrics |= value_metrics(batch, team.learned.get(seat, advantages[seat]))
        seat_metrics |= spread_metrics(batch, group=group)
        check_new(updates[name], seat_metrics, f"algorithm {config.algorithm!r}")
        seat_metrics |= updates[name]
        metrics |= {f"{seat}/{name}/{quantity}": value for quantity, value in seat_metrics.items()}
    metrics |= {f"time/{phase}/seconds": spent for phase, spent in seconds.items()}
    tokens = sum(int(batch.response_length_B.sum()) for batch in batches.values())
    metrics["speed/tokens/per_second"] = tokens / sum(seconds.values())
    return metrics


UNSCORED = ("task_reward", "payoff", "response_length")
"""What is known of a player's games."""


def game_metrics(
    game: VectorGame,
    batches: Mapping[str, Batch],
    names: Mapping[str, str],
    team: Team,
    known: Mapping[str, float],
) -> dict[str, float]:
    """Metrics of players that do not learn, and means of what the task measures over all ranks' games.

    ValueError for what it measures by a name of these or of the metrics that are `known`.
    """
    metrics: dict[str, float] = {}
    if isinstance(game.task, MeasuresGames):
        parts = ranks.gather_object("what the task measures", game.measures())
        for seat, measured in parts[0].items():
            for quantity in measured:
                values = np.concatenate([part[seat][quantity] for part in parts])
                metrics[f"{seat}/{names[seat]}/{quantity}"] = float(values.mean())
    of_players: dict[str, float] = {}
    for seat, batch in batches.items():
        if seat not in team.seating:
            of_player = batch_metrics(batch, kl_coef=0.0, eos=())
            of_players |= {f"{seat}/{names[seat]}/{quantity}": of_player[quantity] for quantity in UNSCORED}
    check_new(metrics, {**known, **of_players}, f"measure_games of {type(game.task).__module__}")
    return metrics | of_players


def value_metrics(batch: Batch, advantage: Advantage) -> dict[str, float]:
    """How well values predict returns over the chosen tokens; empty where there are no values (all 0)."""
    value_K, return_K = batch.chosen(batch.values_BT), batch.chosen(advantage.return_BT)
    if len(value_K) < 2 or not bool(value_K.any()):
        return {}
    return {
        "explained_variance": explained_variance(value_K, return_K),
        "value_first": float(batch.values_BT[:, 0].mean()),
        "return_first": float(advantage.return_BT[:, 0].mean()),
    }


def batch_metrics(batch: Batch, *, kl_coef: float, eos: Iterable[int]) -> dict[str, float]:
    """Means over the games of one seat; KL in nats per response, lengths in tokens."""
    last_B1 = batch.response_BT.gather(1, batch.response_length_B[:, None] - 1)
    ended_B1 = torch.isin(last_B1, torch.tensor(sorted(eos), device=last_B1.device))
    score, kl = float(batch.score_B.mean()), float(batch.exact_kl_BT.sum(1).mean())
    return {
        "task_reward": score,
        "payoff": float(batch.payoff_B.mean()),
        "kl": kl,
        "sampler_difference": float((batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max()),
        "kl_sampled": float((batch.old_logprobs_BT - batch.ref_logprobs_BT).sum(1).mean()),
        "combined_reward": score - kl_coef * kl,
        "response_length": float(batch.response_length_B.cpu().double().mean()),
        "eos_share": float(ended_B1.cpu().double().mean()),
        "empty_share": float((ended_B1[:, 0] & (batch.response_length_B == 1)).cpu().double().mean()),
    }


def spread_metrics(batch: Batch, *, group: int) -> dict[str, float]:
    """Standard deviations of a seat's scores and payoffs, exactly 0 where all are equal.

    With groups also the share of queries whose games all have the same payoff: their advantages come from the
    KL penalty alone, if it is in the rewards.
    """
    spread = {
        "score_std": standard_deviation(batch.score_B),
        "payoff_std": standard_deviation(batch.payoff_B),
    }
    if group > 1:
        payoff_QG = batch.payoff_B.view(-1, group)
        spread["queries_without_spread"] = float((payoff_QG == payoff_QG[:, :1]).all(1).cpu().double().mean())
    return spread


def standard_deviation(values: torch.Tensor | np.ndarray) -> float:
    """The standard deviation of all values, exactly 0 where they are equal."""
    array = np.asarray(values.cpu() if isinstance(values, torch.Tensor) else values, dtype=np.float64)
    return 0.0 if array.min() == array.max() else float(array.std())


VALIDATION = ("task_reward", "kl", "combined_reward", "accuracy")
"""What is logged of the validation split, which is for choices only."""


def response_metrics(place: str, responses: Mapping[str, Responses], *, kl_coef: float) -> dict[str, float]:
    """Metrics of responses by name as `<place>/<name>/<quantity>`."""
    return {
        f"{place}/{name}/{quantity}": value
        for name, of_name in responses.items()
        for quantity, value in of_name.metrics(kl_coef=kl_coef).items()
    }


def validation_metrics(responses: Mapping[str, Responses], *, kl_coef: float) -> dict[str, float]:
    """Metrics of the validation split, which is for choices only."""
    metrics = response_metrics("validation", responses, kl_coef=kl_coef)
    return {key: value for key, value in metrics.items() if key.rpartition("/")[2] in VALIDATION}


def team_metrics(responses: Mapping[str, Responses], *, kl_coef: float) -> dict[str, float]:
    """Metrics of games of the team: `team/<seat>/<quantity>`, and under `team/all` those of all seats.

    Of all seats: the collective reward (sum of the scores), the best score of a game, and the sum of the
    seats' combined rewards.
    """
    metrics = response_metrics("team", responses, kl_coef=kl_coef)
    scores_NQS = np.stack([written.arrays["task_reward"] for written in responses.values()])
    return metrics | {
        "team/all/collective_reward": float(scores_NQS.sum(0).mean()),
        "team/all/best_reward": float(scores_NQS.max(0).mean()),
        "team/all/combined_reward": sum(metrics[f"team/{seat}/combined_reward"] for seat in responses),
    }


def evaluation_metrics(responses: Mapping[str, Responses], *, kl_coef: float) -> dict[str, float]:
    """Standalone metrics as `eval/<policy>/<quantity>`.

    `gain_error` is the standard error, over the queries, of the combined reward less the reference's.
    """
    metrics = response_metrics("eval", responses, kl_coef=kl_coef)
    for name, written in responses.items():
        metrics[f"eval/{name}/score_std"] = standard_deviation(written.arrays["task_reward"])
        reference = responses.get(f"reference_{name}", responses.get("reference"))
        if reference is not None and not name.startswith("reference"):
            ours_Q, theirs_Q = (one.combined(kl_coef=kl_coef) for one in (written, reference))
            error = standard_deviation(ours_Q - theirs_Q) / math.sqrt(max(1, len(ours_Q) - 1))
            metrics[f"eval/{name}/gain_error"] = error
    return metrics


KL_GAMES, KL_TOKENS = 4, 256
"""Sample games, and tokens of each response, whose KL is written."""


def token_kl(batches: Mapping[str, Batch], tokenizer: Tokenizer) -> list[dict[str, list[tuple[str, float]]]]:
    """Text and exact KL to the reference, in nats, of the tokens of the first games, by seat.

    Tokens that are only a part of a character are joined with those that complete it; EOS has no text.
    """
    count = min(KL_GAMES, min(map(len, batches.values()), default=0))
    return [{seat: _token_kl(batch, i, tokenizer) for seat, batch in batches.items()} for i in range(count)]


def _token_kl(batch: Batch, row: int, tokenizer: Tokenizer) -> list[tuple[str, float]]:
    length = min(int(batch.response_length_B[row]), KL_TOKENS)
    ids, kl = batch.response_BT[row, :length].tolist(), batch.exact_kl_BT[row, :length].tolist()
    parts: list[tuple[str, float]] = []
    before, waiting = "", 0.0
    for place in range(length):
        text, waiting = Response.of(ids[: place + 1], tokenizer).text, waiting + kl[place]
        if text.endswith("\N{REPLACEMENT CHARACTER}") and place + 1 < length:
            continue
        parts.append((text[len(before) :], round(waiting, 4)))
        before, waiting = text, 0.0
    return parts
