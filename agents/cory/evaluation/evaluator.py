"""Held-out evaluation of policies: standalone (query only) and in the seats of a game.

Shapes: B games, T tokens, Q queries, S samples (responses to a query).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from cory.distributed import ranks
from cory.evaluation import text_metrics
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.external import Player
from cory.generation import SamplingStrategy
from cory.policies.base import Policy
from cory.policies.scoring import evaluate
from cory.rollout.rollout import RolloutSpec, sample_responses
from cory.runtime.checks import check_new
from cory_env.tasks.base import Task, correct_from, validation_queries
from cory_env.types import Query
from cory_env.vector import VectorGame

Split = Literal["validation", "test"]
"""`validation` is for choices during training, `test` for reports."""

SEED = 20_000
"""Random seed of evaluations; the same for all policies, so that comparisons are paired."""

BATCH = 256
"""Games that are played at once; no number depends on it."""

Measure = Callable[[Sequence[str], np.ndarray], np.ndarray]
"""A function (texts of query + response, their task rewards) -> one number per text."""


@dataclass(frozen=True, kw_only=True)
class Responses:
    """S responses of one policy to each of Q queries, with their metrics."""

    queries: list[str]
    texts: list[list[str]]
    """The responses to each query."""
    ids: list[list[tuple[int, ...]]]
    """The responses as token ids, EOS included when it was chosen."""
    arrays: dict[str, np.ndarray]
    """Per response, [Q, S]: task_reward, kl (exact, nats), length (tokens), eos_share, repetition,
    reference_nats, the payoff in a game, measures, and what the task measures of a game."""
    threshold: float | None = None
    """The task reward from which a response counts as correct; None: nothing says it."""

    def per_query(self, *, kl_coef: float) -> dict[str, np.ndarray]:
        """Every quantity as numbers [Q] whose mean is its value; see `cory.evaluation.text_metrics`.

        `kl_coef` is the KL coefficient of the combined reward. distinct-n covers the first response to each
        query; accuracy and pass@k are included where there is a `threshold`.
        """
        per_query = {
            name: values_QS.mean(1) for name, values_QS in self.arrays.items() if name != "reference_nats"
        }
        tokens_Q, nats_Q = (self.arrays[name].sum(1) for name in ("length", "reference_nats"))
        per_query["combined_reward"] = self.combined(kl_coef=kl_coef)
        per_query["kl_per_token"] = text_metrics.ratio(self.arrays["kl"].sum(1), tokens_Q)
        per_query["reference_perplexity"] = text_metrics.perplexity(nats_Q, tokens_Q)
        for n in (1, 2):
            per_query[f"distinct_{n}"] = text_metrics.distinct([texts[0] for texts in self.texts], n)
        if self.threshold is not None:
            correct_QS = self.arrays["task_reward"] >= self.threshold
            per_query["accuracy"] = correct_QS.mean(1)
            S = correct_QS.shape[1]
            for k in range(1, S + 1) if S > 1 else ():
                passed_Q = [text_metrics.pass_at_k(S, int(c), k) for c in correct_QS.sum(1)]
                per_query[f"pass_at_{k}"] = np.array(passed_Q)
        return per_query

    def combined(self, *, kl_coef: float) -> np.ndarray:
        """The combined reward of each query [Q]."""
        reward_Q: np.ndarray = (self.arrays["task_reward"] - kl_coef * self.arrays["kl"]).mean(1)
        return reward_Q

    def metrics(self, *, kl_coef: float) -> dict[str, float]:
        """The mean of every quantity over the queries."""
        return {name: float(values_Q.mean()) for name, values_Q in self.per_query(kl_coef=kl_coef).items()}


def threshold(config: EvaluationConfig, task: Task) -> float | None:
    """The task reward from which a response counts as correct: that of the settings, else the task's own.

    None if neither says it: then scores do not tell right from wrong, whatever their values are.
    """
    return correct_from(task) if config.threshold is None else config.threshold


def evaluate_standalone(
    policy: Player,
    task: Task,
    config: EvaluationConfig,
    *,
    max_response: tuple[int, int],
    measures: Mapping[str, Measure],
    split: Split = "test",
    seed: int = SEED,
) -> Responses:
    """Responses of `policy` to the query only, as it is deployed: a game with one seat."""
    game = VectorGame(task, seats=1, max_response=max_response, window=policy.window)
    (seat,) = game.seats
    return evaluate_in_game(game, {seat: policy}, config, measures=measures, split=split, seed=seed)[seat]


def evaluate_in_game(
    game: VectorGame,
    policies_by_seat: Mapping[str, Player],
    config: EvaluationConfig,
    *,
    measures: Mapping[str, Measure],
    split: Split = "test",
    seed: int = SEED,
) -> dict[str, Responses]:
    """The responses of every seat in games on the first held-out queries.

    Random numbers are keyed by seed, sample, seat and query index, so they are the same for all policies,
    calls and batch sizes. Policies are sampled by `config.sampling`, without the mismatch they were trained
    with.
    """
    queries_of_split = game.task.queries("test") if split == "test" else validation_queries(game.task)
    held_out = queries_of_split[: config.queries]
    if not held_out:
        raise ValueError(f"the task has no held-out queries; give it data with a {split} split")
    parts: dict[str, list[_Part]] = {seat: [] for seat in game.seats}
    for spec in _specs(game, held_out, config.samples, seed):
        if shared := len(spec.queries) >= ranks.count():
            spec = spec.rows(ranks.share(len(spec.queries)))
        play = partial(_play, game, policies_by_seat, spec, config.sampling, measures)
        for played in ranks.gather_results("an evaluation", play)[: None if shared else 1]:
            for seat, part in played.items():
                parts[seat].append(part)
    texts, correct = [query.text for query in held_out], threshold(config, game.task)
    responses = {seat: _gather(texts, parts[seat], correct) for seat in game.seats}
    if len(game.seats) > 1:  # of all games at once: a payoff may mix them
        scores = [written.arrays["task_reward"] for written in responses.values()]
        payoffs_BN = game.pay(np.stack([score.ravel() for score in scores], axis=1))
        for written, score, payoff_B in zip(responses.values(), scores, payoffs_BN.T, strict=True):
            written.arrays["payoff"] = payoff_B.reshape(score.shape)
    return responses


def _specs(game: VectorGame, queries: Sequence[Query], samples: int, seed: int) -> Iterator[RolloutSpec]:
    """The games of an evaluation by query, then by sample, at most `BATCH` at a time."""
    at_once = max(1, BATCH // samples)
    for start in range(0, len(queries), at_once):
        asked = queries[start : start + at_once]
        spec = RolloutSpec.interleaved([
            RolloutSpec.draw(
                asked,
                seats=game.seats,
                games_B=np.arange(start, start + len(asked)),
                key=(seed, "evaluation", sample),
                max_response=game.cap_range,
            )
            for sample in range(samples)
        ])  # fmt: skip
        for row in range(0, len(spec.queries), BATCH):
            yield spec.rows(slice(row, row + BATCH))


_Part = tuple[list[str], list[tuple[int, ...]], dict[str, np.ndarray]]


def _play(
    game: VectorGame,
    policies_by_seat: Mapping[str, Player],
    spec: RolloutSpec,
    strategy: SamplingStrategy,
    measures: Mapping[str, Measure],
) -> dict[str, _Part]:
    """Play one game per query of `spec`; return texts, ids and arrays [B] of every seat."""
    game.reset(spec.queries, spec.caps_BN)
    rows = {}
    for seat, policy in ((seat, policies_by_seat[seat]) for seat in game.seats):
        rows[seat], _ = sample_responses(game, seat, policy, spec, strategy=strategy)
    scores_BN, measured = game.scores(), game.measures()
    parts: dict[str, _Part] = {}
    for i, seat in enumerate(game.seats):
        player = policies_by_seat[seat]
        scored = evaluate(player if isinstance(player, Policy) else player.reference, rows[seat])
        kl_B = scored.exact_kl_BT.sum(1).cpu().double().numpy()
        responses, eos = game.responses(seat), game.task.tokenizer.eos
        texts = [query.text + response.text for query, response in zip(spec.queries, responses, strict=True)]
        without_eos = [r.ids[:-1] if r.ids[-1] in eos else r.ids for r in responses]
        arrays = {
            "task_reward": scores_BN[:, i],
            "kl": kl_B if isinstance(player, Policy) else np.full_like(kl_B, np.nan),
            "length": rows[seat].response_length_B.cpu().double().numpy(),
            "eos_share": np.array([response.ids[-1] in eos for response in responses], dtype=float),
            "repetition": np.array([text_metrics.repetition(ids) for ids in without_eos]),
            "reference_nats": -scored.ref_logprobs_BT.sum(1).cpu().double().numpy(),
            **{name: np.asarray(measure(texts, scores_BN[:, i])) for name, measure in measures.items()},
        }
        check_new(
            measured.get(seat, ()), [*arrays, "payoff"], f"measure_games of {type(game.task).__module__}"
        )
        arrays |= measured.get(seat, {})
        ids = [tuple(response.ids) for response in responses]
        parts[seat] = ([response.text for response in responses], ids, arrays)
    return parts


def _gather(queries: list[str], parts: Sequence[_Part], correct: float | None) -> Responses:
    """Join parts that are ordered by query, then by sample."""
    texts = [text for part in parts for text in part[0]]
    ids = [response for part in parts for response in part[1]]
    Q, S = len(queries), len(texts) // len(queries)
    names = parts[0][2]
    return Responses(
        queries=queries,
        texts=[texts[i * S : (i + 1) * S] for i in range(Q)],
        ids=[ids[i * S : (i + 1) * S] for i in range(Q)],
        arrays={name: np.concatenate([part[2][name] for part in parts]).reshape(Q, S) for name in names},
        threshold=correct,
    )
