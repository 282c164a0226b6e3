"""Games of a probe: every query with several pioneer responses, each read by the observer several times.

Shapes: Q queries, P pioneer responses to a query, R observer responses to a pioneer response, G = Q P pioneer
responses, H = G R games, B games of a part, T response tokens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cory import rng
from cory.evaluation.config import ProbeConfig
from cory.evaluation.external import Player
from cory.rollout.rollout import RolloutSpec, sample_responses
from cory_env.arrays import pack
from cory_env.vector import VectorGame

PIONEER, OBSERVER = "pioneer_0", "observer_1"

READ = ("own", "unrelated", "none")
"""What the observer reads: its own pioneer's response, that of the pioneer of another query, or none."""


@dataclass(frozen=True, kw_only=True)
class ProbeGames:
    """All games of one pair of policies in their seats."""

    pioneer_texts: list[list[str]]
    """The pioneer's responses to each query, [Q][P]."""
    observer_texts: list[list[list[str]]]
    """The observer's responses after reading its own pioneer's, [Q][P][R]."""
    pioneer_scores_QP: np.ndarray
    """In the game with the observer that reads the response, mean over its responses."""
    observer_scores: dict[str, np.ndarray]
    """The observer's scores [Q, P, R] by what it read (`READ`), with the same random numbers."""


def play_probe(
    game: VectorGame, policies_by_seat: Mapping[str, Player], config: ProbeConfig, *, batch: int = 256
) -> ProbeGames:
    """Play a probe of the policies in a game of two seats on its first held-out queries, `batch` at a time.

    Policies sample their own distribution. Random numbers are keyed by seed, seat and game, so they are the
    same for all pairs of policies, for everything the observer reads and for all batch sizes. ValueError if
    the task has too few queries.
    """
    queries = game.task.queries("test")[: config.queries]
    if len(queries) < 2:
        raise ValueError(f"the task has {len(queries)} held-out queries; a probe needs 2 or more")
    Q, P, R = len(queries), config.pioneers, config.observers

    def specs(seat: str, games: int) -> Iterator[tuple[np.ndarray, RolloutSpec]]:
        """Parts of so many games: their indices and what they are drawn by."""
        for start in range(0, games, batch):
            games_B = np.arange(start, min(start + batch, games))
            yield (
                games_B,
                RolloutSpec.draw(
                    [queries[i // (games // Q)] for i in games_B.tolist()],
                    seats=game.seats,
                    games_B=games_B,
                    key=(config.seed, "probe", seat.partition("_")[0]),
                    max_response=game.cap_range,
                ),
            )

    ids, texts = [], []
    for _, spec in specs(PIONEER, Q * P):
        game.reset(spec.queries, spec.caps_BN)
        sample_responses(game, PIONEER, policies_by_seat[PIONEER], spec, strategy="own")
        ids += [response.ids for response in game.responses(PIONEER)]
        texts += game.texts(PIONEER)
    length_G = np.array([len(response) for response in ids])
    ids_GT = pack(ids, game.task.tokenizer.pad)[0]
    shown = {"unrelated": _of_other_queries(Q, P, config.seed)}
    blind = VectorGame(game.task, seats=2, views="none", max_response=game.cap_range)
    scores, observer_texts = {}, []
    for read in READ:
        played, parts = blind if read == "none" else game, []
        for games_B, spec in specs(OBSERVER, Q * P * R):
            shown_B = shown.get(read, np.arange(Q * P))[games_B // R]
            # A response that ends where it ended: with EOS, or at its cap.
            played.reset(spec.queries, np.stack([length_G[shown_B], spec.caps_BN[:, 1]], axis=1))
            played.respond(PIONEER, ids_GT[shown_B], length_G[shown_B])
            sample_responses(played, OBSERVER, policies_by_seat[OBSERVER], spec, strategy="own")
            parts.append(played.scores())
            observer_texts += played.texts(OBSERVER) if read == "own" else []
        scores[read] = np.concatenate(parts).reshape(Q, P, R, 2)
    return ProbeGames(
        pioneer_texts=[texts[q * P : (q + 1) * P] for q in range(Q)],
        observer_texts=np.array(observer_texts, dtype=object).reshape(Q, P, R).tolist(),
        pioneer_scores_QP=scores["own"][..., 0].mean(2),
        observer_scores={read: of_seats[..., 1] for read, of_seats in scores.items()},
    )


def _of_other_queries(Q: int, P: int, seed: int) -> np.ndarray:
    """For each response one to another query: P different queries where there are that many others; [G]."""
    order = rng.permutation((seed, "probe", "unrelated"), Q - 1)
    q, p = np.divmod(np.arange(Q * P), P)
    source_G: np.ndarray = (q + 1 + order[p % (Q - 1)]) % Q * P + p
    return source_G
