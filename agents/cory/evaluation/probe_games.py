"""Games of a probe: every query with several pioneer responses, each read by the observer several times.

Shapes: Q queries, P pioneer responses to a query, R observer responses to a pioneer response, G = Q P pioneer
responses, H = G R games, B games of a part, T response tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from cory import rng
from cory.batch import Batch, stack
from cory.evaluation.evaluator import without_mismatch
from cory.policies.base import Policy
from cory.policies.scoring import make_batch
from cory.rollout.rollout import sample_responses
from cory.rollout.spec import RolloutSpec
from cory_env.types import Query
from cory_env.vector import VectorGame

PIONEER, OBSERVER = "pioneer_0", "observer_1"

READ = ("own", "unrelated", "corrupted", "none")
"""What the observer reads: the response of its own pioneer, of the pioneer of another query, its own
pioneer's with the tokens shuffled, or none."""


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """Size and random seed of a probe."""

    queries: int = 64
    """Held-out queries."""

    pioneers: int = 4
    """Pioneer responses to each query."""

    observers: int = 4
    """Observer responses to each pioneer response."""

    seed: int = 0
    """Random seed; the same for all pairs of policies, so that comparisons are paired."""

    batch: int = 256
    """Games per batch; affects speed and memory only."""

    def __post_init__(self) -> None:
        rng.check_seed(self.seed)
        for name in ("queries", "pioneers", "observers"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} is {getattr(self, name)}; a variance needs 2 or more")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; give 1 or more games")


@dataclass(frozen=True, kw_only=True)
class ProbeGames:
    """All games of one pair of policies in their seats."""

    pioneer_texts: list[list[str]]
    """The pioneer's responses to each query, [Q][P]."""
    observer_texts: list[list[list[str]]]
    """The observer's responses after reading its own pioneer's, [Q][P][R]."""
    pioneer_scores_QP: np.ndarray
    observer_scores: dict[str, np.ndarray]
    """The observer's scores [Q, P, R] by what it read (`READ`), with the same random numbers."""
    kl: dict[str, np.ndarray]
    """Exact KL to the reference in nats: of the pioneer [Q, P], of the observer after its own [Q, P, R]."""
    shuffled_QP: np.ndarray
    """True = shuffling its tokens changed the pioneer's response."""
    batches: dict[str, Batch]
    """Both seats' batches of the H games with the own pioneer, as a learner gets them; games of a query are
    neighbours, and among them those of a pioneer response."""


class _Shown(NamedTuple):
    """Pioneer responses to insert into games."""

    ids_GT: np.ndarray
    length_G: np.ndarray
    caps_G: np.ndarray


def play_probe(game: VectorGame, policies_by_seat: Mapping[str, Policy], config: ProbeConfig) -> ProbeGames:
    """Play a probe of the policies in a game of two seats on its first held-out queries.

    Policies sample their own distribution. Random numbers are keyed by seed, seat and game, so they are the
    same for all pairs of policies, for everything the observer reads and for all batch sizes. ValueError if
    the game has other seats or the task too few queries.
    """
    if game.seats != (PIONEER, OBSERVER):
        raise ValueError(f"the game has the seats {', '.join(game.seats)}; a probe needs a game of two seats")
    queries = list(game.task.queries("test")[: config.queries])
    if len(queries) < 2:
        raise ValueError(f"the task has {len(queries)} held-out queries; a probe needs 2 or more")
    Q, P, R = len(queries), config.pioneers, config.observers
    pioneer_batch, caps_G, pioneer_texts = _play_pioneer(game, policies_by_seat[PIONEER], queries, config)
    own = _Shown(
        pioneer_batch.response_BT.cpu().numpy(), pioneer_batch.response_length_B.cpu().numpy(), caps_G
    )
    corrupted = _shuffled(own, game.task.tokenizer.eos, config.seed)
    shown = {"own": own, "unrelated": _of_other_queries(own, Q, P, config.seed), "corrupted": corrupted}
    blind = VectorGame(game.task, seats=2, views="none", max_response=game.cap_range)
    parts = {
        read: list(
            _play_observer(
                blind if read == "none" else game,
                policies_by_seat[OBSERVER],
                queries,
                shown.get(read, own),
                config,
                scored=read == "own",
            )
        )
        for read in READ
    }
    scores_H2 = np.concatenate([part.scores_B2 for part in parts["own"]])
    payoffs_H2 = game.pay(scores_H2)
    texts = [text for part in parts["own"] for text in part.texts]
    observer_batch = stack(Batch, [part.batch for part in parts["own"] if part.batch is not None])
    index_H = torch.arange(Q * P * R, device=pioneer_batch.response_BT.device) // R
    batches = {PIONEER: pioneer_batch.take(index_H), OBSERVER: observer_batch}
    batches = {
        seat: replace(batch, score_B=_like(scores_H2[:, i], batch), payoff_B=_like(payoffs_H2[:, i], batch))
        for i, (seat, batch) in enumerate(batches.items())
    }
    kl = {seat: batch.exact_kl_BT.sum(1).cpu().double().numpy() for seat, batch in batches.items()}
    return ProbeGames(
        pioneer_texts=[pioneer_texts[q * P : (q + 1) * P] for q in range(Q)],
        observer_texts=[[texts[g * R : (g + 1) * R] for g in range(q * P, (q + 1) * P)] for q in range(Q)],
        pioneer_scores_QP=scores_H2[:, 0].reshape(Q, P, R).mean(2),
        observer_scores={
            read: np.concatenate([part.scores_B2[:, 1] for part in found]).reshape(Q, P, R)
            for read, found in parts.items()
        },
        kl={PIONEER: kl[PIONEER].reshape(Q, P, R)[:, :, 0], OBSERVER: kl[OBSERVER].reshape(Q, P, R)},
        shuffled_QP=(corrupted.ids_GT != own.ids_GT).any(1).reshape(Q, P),
        batches=batches,
    )


def _play_pioneer(
    game: VectorGame, policy: Policy, queries: Sequence[Query], config: ProbeConfig
) -> tuple[Batch, np.ndarray, list[str]]:
    """Sample P responses to every query; the batch without scores, the caps [G] and the texts."""
    batches, caps, texts = [], [], []
    for games_B in _parts(len(queries) * config.pioneers, config.batch):
        spec = RolloutSpec.draw(
            [queries[g // config.pioneers] for g in games_B],
            seats=game.seats,
            games_B=games_B,
            key=(config.seed, "probe", "pioneer"),
            max_response=game.cap_range,
        )
        game.reset(spec.queries, spec.caps_BN)
        with without_mismatch(policy):
            rows, logprobs_BT = sample_responses(game, PIONEER, policy, spec)
        unscored_B = torch.zeros(len(games_B), device=logprobs_BT.device)
        batches.append(make_batch(policy, rows, logprobs_BT, unscored_B, unscored_B))
        caps.append(spec.caps_BN[:, 0])
        texts += game.texts(PIONEER)
    return stack(Batch, batches), np.concatenate(caps), texts


class _Observed(NamedTuple):
    """Some games to their end."""

    scores_B2: np.ndarray
    texts: list[str]
    batch: Batch | None


def _play_observer(
    game: VectorGame,
    policy: Policy,
    queries: Sequence[Query],
    shown: _Shown,
    config: ProbeConfig,
    *,
    scored: bool,
) -> Iterator[_Observed]:
    """Play R games with every pioneer response of `shown`; with `scored` the observer's batches too."""
    P, R = config.pioneers, config.observers
    for games_B in _parts(len(queries) * P * R, config.batch):
        spec = RolloutSpec.draw(
            [queries[h // (P * R)] for h in games_B],
            seats=game.seats,
            games_B=games_B,
            key=(config.seed, "probe", "observer"),
            max_response=game.cap_range,
        )
        read_B = games_B // R
        caps_B2 = np.stack([shown.caps_G[read_B], spec.caps_BN[:, 1]], axis=1)
        game.reset(spec.queries, caps_B2)
        game.respond(PIONEER, shown.ids_GT[read_B], shown.length_G[read_B])
        with without_mismatch(policy):
            rows, logprobs_BT = sample_responses(game, OBSERVER, policy, spec)
        scores_B2 = game.scores()
        batch = None
        if scored:
            unscored_B = torch.zeros(len(games_B), device=logprobs_BT.device)
            batch = make_batch(policy, rows, logprobs_BT, unscored_B, unscored_B)
        yield _Observed(scores_B2, game.texts(OBSERVER), batch)


def _of_other_queries(own: _Shown, Q: int, P: int, seed: int) -> _Shown:
    """For each response that of another query: P different ones a query where there are that many others."""
    order = rng.permutation((seed, "probe", "unrelated"), Q - 1)
    q, p = np.divmod(np.arange(Q * P), P)
    source_G = (q + 1 + order[p % (Q - 1)]) % Q * P + p
    return _Shown(own.ids_GT[source_G], own.length_G[source_G], own.caps_G[source_G])


def _shuffled(own: _Shown, eos: frozenset[int], seed: int) -> _Shown:
    """The responses with their tokens in random order; an EOS stays at the end."""
    ids_GT = own.ids_GT.copy()
    for g, n in enumerate(own.length_G.tolist()):
        m = n - (int(ids_GT[g, n - 1]) in eos)
        order = rng.permutation((seed, "probe", "corrupted", g), m)
        ids_GT[g, :m] = ids_GT[g, :m][order]
    return own._replace(ids_GT=ids_GT)


def _parts(games: int, size: int) -> Iterator[np.ndarray]:
    """Consecutive game indices, at most `size` at a time."""
    for start in range(0, games, size):
        yield np.arange(start, min(start + size, games))


def _like(values_B: np.ndarray, batch: Batch) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values_B)).to(batch.score_B)
