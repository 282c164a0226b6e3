"""What two seats do to each other: measures of a probe's games, as estimates with intervals over queries.

Shapes: Q queries, P pioneer responses to a query, R observer responses to a pioneer response, S standalone
responses to a query, H games, T response tokens.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cory.batch import Batch
from cory.evaluation import text_metrics
from cory.evaluation.bootstrap import Estimate, estimates
from cory.evaluation.evaluator import Responses
from cory.evaluation.probe_games import OBSERVER, PIONEER, ProbeGames
from cory.evaluation.variance_components import (
    SMALLEST,
    components,
    resampled,
    signal_share,
    two_components,
)
from cory.functional.advantage import Advantage

Estimates = dict[str, Estimate]

STANDALONE = "standalone"


def influence(games: ProbeGames) -> Estimates:
    """Estimate the variance components of the observer's score, and how far the seats' scores go together.

    `query`, `pioneer`, `observer` and `pioneer_share` are those of
    `cory.evaluation.variance_components.components`; `slope` and `slope_none` are slopes of the observer's on
    the pioneer's score within a query, when the observer reads the response and when it reads none (then 0 in
    expectation); `own_query` and `own_chance` are the components of the pioneer's own score.
    """
    own = two_components(games.pioneer_scores_QP)
    return {
        **components(games.observer_scores["own"]),
        "slope": slope(games.pioneer_scores_QP, games.observer_scores["own"]),
        "slope_none": slope(games.pioneer_scores_QP, games.observer_scores["none"]),
        "own_query": own["query"],
        "own_chance": own["chance"],
    }


def slope(pioneer_QP: np.ndarray, observer_QPR: np.ndarray) -> Estimate:
    """Estimate the slope of the observer's score on the pioneer's within a query.

    sum over q, p of x y / sum of x^2, both scores less their query's mean; NaN if no pioneer's score varies
    within a query.
    """
    mean_QP = observer_QPR.mean(2)
    x_QP = pioneer_QP - pioneer_QP.mean(1, keepdims=True)
    y_QP = mean_QP - mean_QP.mean(1, keepdims=True)
    return resampled(_ratio_of_sums, (x_QP * y_QP).sum(1), (x_QP**2).sum(1))


def reading(games: ProbeGames) -> Estimates:
    """Estimate the observer's mean score by what it reads, and paired differences from its own pioneer's.

    `shuffled` is the share of pioneer responses that differ from their corrupted form.
    """
    by_read = {read: scores.mean((1, 2)) for read, scores in games.observer_scores.items()}
    own_Q = by_read["own"]
    gaps = {f"own minus {read}": own_Q - found_Q for read, found_Q in by_read.items() if read != "own"}
    return estimates({**by_read, **gaps, "shuffled": games.shuffled_QP.mean(1)})


def copying(games: ProbeGames) -> Estimates:
    """Estimate how much of a pioneer response the observer repeats.

    `equal`: share of observer responses with the same text, white space around it aside. `overlap`: Jaccard
    index of words and word pairs (`text_metrics.overlap`). Each against the response that the observer read
    (`read`), another one to the same query (`same_query`), which shows what the query explains, and one to
    another query (`other_query`).
    """
    Q, P = games.pioneer_scores_QP.shape
    compared = {"read": (0, 0), "same_query": (0, 1), "other_query": (1, 0)}
    per_query: dict[str, np.ndarray] = {}
    for name, (later_q, later_p) in compared.items():
        pairs = [
            [
                (text, games.pioneer_texts[(q + later_q) % Q][(p + later_p) % P])
                for p, texts in enumerate(games.observer_texts[q])
                for text in texts
            ]
            for q in range(Q)
        ]
        per_query[f"equal_{name}"] = _means(
            [ours.strip() == read.strip() for ours, read in row] for row in pairs
        )
        per_query[f"overlap_{name}"] = _means([text_metrics.overlap(*pair) for pair in row] for row in pairs)
    per_query["overlap_read minus same_query"] = per_query["overlap_read"] - per_query["overlap_same_query"]
    return estimates(per_query)


def values(batch: Batch, advantage: Advantage, queries: int) -> Estimates:
    """Estimate how well a seat's values predict its returns, over the chosen tokens of all games.

    `explained_variance` = 1 - var(return - value) / var(return); `value_first` and `return_first` are means
    before the first token. Empty where there are no values (all 0).
    """
    mask_BT = batch.mask_BT.cpu().numpy()
    value_BT, return_BT = (x.cpu().double().numpy() for x in (batch.values_BT, advantage.return_BT))
    if not value_BT[mask_BT].any():
        return {}

    def sums(values_BT: np.ndarray) -> np.ndarray:
        """Sum over the chosen tokens of each query [Q]."""
        found_Q: np.ndarray = np.where(mask_BT, values_BT, 0.0).sum(1).reshape(queries, -1).sum(1)
        return found_Q

    error_BT, centred_BT = return_BT - value_BT, return_BT - return_BT[mask_BT].mean()
    moments = [sums(np.ones_like(value_BT))]
    moments += [sums(x_BT**power) for x_BT in (centred_BT, error_BT) for power in (1, 2)]
    first = {"value_first": value_BT, "return_first": return_BT}
    return {
        "explained_variance": resampled(_explained, *moments),
        **estimates({name: x_BT[:, 0].reshape(queries, -1).mean(1) for name, x_BT in first.items()}),
    }


def signal(advantage: Advantage, batch: Batch, seat: str, shape: tuple[int, int, int]) -> Estimates:
    """Estimate the signal in a seat's advantage, which is averaged over the tokens of each response.

    `signal_share` is that of `variance_components.signal_share`; `signal_to_noise` is share / (1 - share).
    `shape` is (Q, P, R).
    """
    advantage_BT = advantage.advantage_BT.cpu().double().numpy()
    mask_BT = batch.mask_BT.cpu().numpy()
    advantage_B = np.where(mask_BT, advantage_BT, 0.0).sum(1) / mask_BT.sum(1)
    share = signal_share(advantage_B.reshape(shape), "pioneer" if seat == PIONEER else "observer")
    return {"signal_share": share, "signal_to_noise": Estimate(*map(_odds, share))}


def skill(
    standalone: Mapping[str, Responses],
    games: Iterable[tuple[Mapping[str, str], ProbeGames]],
    references: Mapping[str, str],
) -> dict[str, dict[str, Estimates]]:
    """Estimate score and KL of every policy by where it responds, and paired differences of these.

    policy -> `task_reward` and `kl` -> `standalone` (the query only), the seats it sat in, `observer_1 minus
    standalone` (the gap of the observer's prompt), `pioneer_0 minus standalone` and `observer_1 minus
    pioneer_0`. Scores of a policy that has one of the `references` also have `free-riding`: what its training
    added as the observer, beside the trained pioneer, less what it added standalone.
    """
    found: dict[str, dict[str, dict[str, np.ndarray]]] = {
        name: {
            quantity: {STANDALONE: responses.arrays[quantity].mean(1)} for quantity in ("task_reward", "kl")
        }
        for name, responses in standalone.items()
    }
    for seating, of_pair in games:
        score = {PIONEER: of_pair.pioneer_scores_QP, OBSERVER: of_pair.observer_scores["own"].mean(2)}
        kl = {PIONEER: of_pair.kl[PIONEER], OBSERVER: of_pair.kl[OBSERVER].mean(2)}
        for seat, name in seating.items():
            found[name]["task_reward"][seat] = score[seat].mean(1)
            found[name]["kl"][seat] = kl[seat].mean(1)
    pairs = [(OBSERVER, STANDALONE), (PIONEER, STANDALONE), (OBSERVER, PIONEER)]
    result: dict[str, dict[str, Estimates]] = {}
    for name, by_quantity in found.items():
        result[name] = {}
        for quantity, per_query in by_quantity.items():
            gaps = {
                f"{a} minus {b}": per_query[a] - per_query[b]
                for a, b in pairs
                if a in per_query and b in per_query
            }
            gap, before = f"{OBSERVER} minus {STANDALONE}", found.get(references.get(name, ""), {})
            reference = before.get("task_reward", {})
            if quantity == "task_reward" and gap in gaps and reference.keys() >= {OBSERVER, STANDALONE}:
                gaps["free-riding"] = gaps[gap] - (reference[OBSERVER] - reference[STANDALONE])
            result[name][quantity] = estimates({**per_query, **gaps})
    return result


def specialisation(ours: Responses, theirs: Responses) -> Estimates:
    """Estimate how much two policies differ standalone: their texts, and the queries they are good at.

    `differing` and `ngram_distance` are those of `text_metrics.diversity`; `score_correlation` is the
    correlation over queries of the policies' expected scores (`expected_correlation`).
    """
    scores = (one.arrays["task_reward"] for one in (ours, theirs))
    return {
        **estimates(text_metrics.diversity(ours.texts, theirs.texts)),
        "score_correlation": expected_correlation(*scores),
    }


def expected_correlation(a_QS: np.ndarray, b_QS: np.ndarray) -> Estimate:
    """Estimate the correlation over queries of two policies' expected scores.

    1 means that both are good at the same queries, however noisy single scores are. Products are taken of
    different samples only, so that neither chance nor random numbers that both policies share count as
    agreement (the correction for attenuation: Spearman 1904). It can exceed 1 by chance, and is NaN where the
    expected scores do not vary.
    """
    S = a_QS.shape[1]
    if S < 2:
        raise ValueError("one sample per query cannot tell skill from chance; give 2 or more")

    def product(x_QS: np.ndarray, y_QS: np.ndarray) -> np.ndarray:
        products_Q: np.ndarray = (x_QS.sum(1) * y_QS.sum(1) - (x_QS * y_QS).sum(1)) / (S * (S - 1))
        return products_Q

    return resampled(
        _correlation,
        a_QS.mean(1),
        b_QS.mean(1),
        product(a_QS, b_QS),
        product(a_QS, a_QS),
        product(b_QS, b_QS),
    )


def as_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return estimates at any depth as objects with value, low and high; None for what is not finite."""
    return {
        name: (
            {part: x if math.isfinite(x) else None for part, x in one._asdict().items()}
            if isinstance(one, Estimate)
            else as_json(one)
            if isinstance(one, Mapping)
            else one
        )
        for name, one in found.items()
    }


def _means(rows: Iterable[list[Any]]) -> np.ndarray:
    return np.array([np.mean(row) for row in rows])


def _odds(share: float) -> float:
    """share / (1 - share), NaN from 1 on."""
    return share / (1 - share) if share < 1 - SMALLEST else math.nan


def _ratio_of_sums(numerator_Q: np.ndarray, denominator_Q: np.ndarray, axis: int = -1) -> Any:
    below = denominator_Q.sum(axis)
    defined = below > SMALLEST
    return np.where(defined, numerator_Q.sum(axis) / np.where(defined, below, 1.0), np.nan)


def _explained(
    count_Q: np.ndarray,
    return_Q: np.ndarray,
    return2_Q: np.ndarray,
    error_Q: np.ndarray,
    error2_Q: np.ndarray,
    axis: int = -1,
) -> Any:
    """1 - var(error) / var(return), from sums of both and of their squares."""
    count = count_Q.sum(axis)
    of_return = return2_Q.sum(axis) / count - (return_Q.sum(axis) / count) ** 2
    of_error = error2_Q.sum(axis) / count - (error_Q.sum(axis) / count) ** 2
    defined = of_return > SMALLEST
    return np.where(defined, 1 - of_error / np.where(defined, of_return, 1.0), np.nan)


def _correlation(
    a_Q: np.ndarray, b_Q: np.ndarray, ab_Q: np.ndarray, aa_Q: np.ndarray, bb_Q: np.ndarray, axis: int = -1
) -> Any:
    """Covariance over the root of both variances, each free of the chance within queries."""
    Q = a_Q.shape[axis]

    def covariance(x_Q: np.ndarray, y_Q: np.ndarray, xy_Q: np.ndarray) -> Any:
        others = (x_Q.sum(axis) * y_Q.sum(axis) - (x_Q * y_Q).sum(axis)) / (Q * (Q - 1))
        return xy_Q.mean(axis) - others

    product = covariance(a_Q, a_Q, aa_Q), covariance(b_Q, b_Q, bb_Q)
    defined = (product[0] > SMALLEST) & (product[1] > SMALLEST)
    scale = np.sqrt(np.where(defined, product[0] * product[1], 1.0))
    return np.where(defined, covariance(a_Q, b_Q, ab_Q) / scale, np.nan)
