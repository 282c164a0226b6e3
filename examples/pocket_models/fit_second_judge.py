"""Fit the second judge, on other movies than the first.

    python -m examples.pocket_models.fit_second_judge --data train.parquet

Words and word pairs scaled by log-count ratios (Wang & Manning 2012, "Baselines and Bigrams"), with the
logistic loss instead of the hinge. Takes a minute.

Shapes: N texts, F buckets.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize, sparse

from cory.judges.ngrams import NGrams, ngram_buckets
from cory.pocket import SECOND_JUDGE
from examples.pocket_models.calibrate import accuracy, calibration_error, temperature
from examples.pocket_models.corpus import SECOND_JUDGE as FITTED
from examples.pocket_models.corpus import SECOND_JUDGE_HELD_OUT, game_openings, part, snippet


@dataclass(frozen=True, kw_only=True)
class Config:
    """Data, fit and output folder."""

    data: Path
    """Parquet file of reviews with the columns `text`, `label` (0, 1) and `movie`."""

    out: Path = SECOND_JUDGE
    """Folder the judge is written to."""

    snippets: int = 4
    """Snippets drawn from every review, in addition to the whole review."""

    words: tuple[int, int] = (4, 60)
    """Shortest and longest snippet."""

    opening: float = 0.3
    """Probability that a snippet is the beginning of its review."""

    buckets: int = 2**18
    """Number of weights; n-grams in the same bucket share one."""

    exponent: float = 0.25
    """The sum of a text's n weights is divided by n to this power."""

    penalty: float = 3e-5
    """Weight of the squared norm, added to the mean loss."""

    iterations: int = 30
    seed: int = 0


def design(texts: list[str], config: Config) -> sparse.csr_matrix:
    """Rows [N, F]: n^(-exponent) in each of the n buckets of a text."""
    rows = [ngram_buckets(text, config.buckets) for text in texts]
    counts = np.array([len(row) for row in rows])
    values = np.repeat(np.maximum(1, counts) ** -config.exponent, counts)
    columns = np.fromiter((bucket for row in rows for bucket in row), np.int64, counts.sum())
    return sparse.csr_matrix(
        (values, columns, np.concatenate([[0], counts.cumsum()])), (len(rows), config.buckets)
    )


def log_count_ratio(rows_NF: sparse.csr_matrix, label_N: np.ndarray) -> np.ndarray:
    """r = log((1 + c+) / |1 + c+|) - log((1 + c-) / |1 + c-|), c: texts of a label that have a bucket."""
    has_NF = rows_NF.sign()
    positive_F, negative_F = (1 + np.asarray(has_NF[label_N == k].sum(axis=0)).ravel() for k in (1, 0))
    ratio_F: np.ndarray = np.log(positive_F / positive_F.sum()) - np.log(negative_F / negative_F.sum())
    return ratio_F


def logistic(rows_NF: sparse.csr_matrix, label_N: np.ndarray, config: Config) -> tuple[np.ndarray, float]:
    """Weights [F] and bias of least mean loss + penalty / 2 |weights|^2, both labels weighted equally."""
    sign_N = 2.0 * label_N - 1
    share_N = 0.5 / np.where(label_N == 1, (label_N == 1).sum(), (label_N == 0).sum())
    columns_FN = rows_NF.T.tocsr()

    def loss(solution: np.ndarray) -> tuple[float, np.ndarray]:
        weights_F, bias = solution[:-1], solution[-1]
        margin_N = sign_N * (rows_NF @ weights_F + bias)
        slope_N = -sign_N * share_N / (1 + np.exp(margin_N))
        value = share_N @ np.logaddexp(0, -margin_N) + config.penalty / 2 * (weights_F @ weights_F)
        return value, np.append(columns_FN @ slope_N + config.penalty * weights_F, slope_N.sum())

    start = np.zeros(rows_NF.shape[1] + 1)
    result = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": config.iterations}
    )
    return result.x[:-1], float(result.x[-1])


def save(folder: Path, weights_F: np.ndarray, bias: float, config: Config) -> None:
    """Write a folder that `cory.judges.ngrams.NGrams` reads, without pickle."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({"weights": weights_F.astype(np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"exponent": config.exponent, "bias": bias}, indent=1) + "\n"
    )


def fit(config: Config) -> None:
    """Fit, calibrate on held-out openings of 5 to 18 words, save."""
    rng = random.Random(config.seed)
    texts, labels = part(config.data, FITTED)
    drawn = [snippet(t, rng, words=config.words, opening=config.opening) for t in texts * config.snippets]
    rows_NF = design(texts + drawn, config)
    label_N = np.array(labels * (1 + config.snippets))
    ratio_F = log_count_ratio(rows_NF[: len(texts)], label_N[: len(texts)])
    weights_F, bias = logistic((rows_NF @ sparse.diags(ratio_F)).tocsr(), label_N, config)
    weights_F = weights_F * ratio_F
    save(config.out, weights_F, bias, config)

    held, held_labels = part(config.data, SECOND_JUDGE_HELD_OUT)
    short, short_labels = game_openings(held, held_labels, rng)
    T = temperature(NGrams(config.out)(short), short_labels)
    save(config.out, weights_F / T, bias / T, config)
    scores = NGrams(config.out)(short)
    metrics = {"temperature": T, "held_out_accuracy": accuracy(scores, short_labels)}
    print(json.dumps(metrics | {"held_out_calibration_error": calibration_error(scores, short_labels)}))


if __name__ == "__main__":
    import tyro

    fit(tyro.cli(Config, description=__doc__))
