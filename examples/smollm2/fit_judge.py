"""Fit the judge `smollm2`: a linear head on the mean hidden state of SmolLM2's first layers.

    python -m examples.smollm2.fit_judge --data train.parquet

The language model is frozen and reads every review once. It is causal, so the states of a snippet's first
words are those of a shorter snippet: each snippet is an example at four lengths. What was read is kept in
`work`, and a stopped fit goes on from there.

Shapes: N examples, B snippets, T tokens, D width.
"""

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import optimize

from cory.judges.classifier import Classifier
from cory.judges.linear_head import LinearHead
from cory.pocket import JUDGE, SMOLLM2_JUDGE, lm_path
from cory.runtime.cpu import configure_runtime
from cory.runtime.provenance import environment
from examples.pocket_models.calibrate import accuracy, calibration_error, temperature
from examples.pocket_models.corpus import JUDGE as FITTED
from examples.pocket_models.corpus import JUDGE_HELD_OUT, first_words, game_openings, part, reviews, snippet
from examples.smollm2 import main
from examples.work import begin

LENGTHS = (0.25, 0.5, 0.75, 1.0)
"""The examples of a snippet, as shares of its tokens."""

SHORTEST = 4
"""Fewest tokens of an example."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Data, model, and output folder."""

    data: Path
    """Parquet file of reviews with the columns `text`, `label` (0, 1) and `movie`."""

    model: str = "smollm2"
    """The language model: a name or a folder."""

    layers: int = 16
    """How many of its layers are used."""

    out: Path = SMOLLM2_JUDGE
    """Folder the judge is written to."""

    work: Path = Path("runs/smollm2_judge")
    """Folder of the states."""

    reviews: int = 5_120
    """Most reviews that are read, in an order drawn from the seed."""

    held_out: int = 800
    """Most reviews of other films on which penalty and temperature are chosen."""

    words: tuple[int, int] = (4, 60)
    """Shortest and longest snippet."""

    opening: float = 0.5
    """Probability that a snippet is the beginning of its review."""

    penalties: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
    """Weights of the squared norm that are tried."""

    chunk: int = 128
    """Snippets per file of states."""

    test: Path | None = None
    """Parquet file of other reviews on which the judge is measured beside the pocket judge."""

    test_every: int = 8
    """Every n-th of them."""

    threads: int = 1
    seed: int = 0


Examples = tuple[np.ndarray, np.ndarray]
"""Mean states [N, D] and labels [N]."""


def drawn(
    texts: Sequence[str], labels: Sequence[int], config: Config, count: int
) -> tuple[list[str], list[int]]:
    """One snippet of up to `count` reviews, the first of an order drawn from the seed."""
    rng = random.Random(config.seed)
    order = rng.sample(range(len(texts)), len(texts))
    snippets = [snippet(texts[i], rng, words=config.words, opening=config.opening) for i in order]
    return snippets[:count], [labels[i] for i in order[:count]]


@torch.inference_mode()
def mean_states(judge: LinearHead, tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    """The mean states [B, 4, D] of the first tokens of each text, by `LENGTHS`."""
    ids = tokenizer(list(texts))["input_ids"]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    result = torch.empty(len(ids), len(LENGTHS), judge.config.hidden_size)
    for start in range(0, len(order), 32):
        rows = order[start : start + 32]
        padded = tokenizer.pad({"input_ids": [ids[i] for i in rows]}, return_tensors="pt")
        sums_BTD = judge.states(padded["input_ids"], padded["attention_mask"]).cumsum(1)
        for sums_TD, i in zip(sums_BTD, rows, strict=True):
            counts = [min(len(ids[i]), max(SHORTEST, round(share * len(ids[i])))) for share in LENGTHS]
            result[i] = torch.stack([sums_TD[n - 1] / n for n in counts])
    return result


def read(
    judge: LinearHead, tokenizer: Any, texts: Sequence[str], config: Config, name: str
) -> Iterator[np.ndarray]:
    """The states of all texts, chunk by chunk; those of an earlier call come from `config.work`."""
    start = time.time()
    for first in range(0, len(texts), config.chunk):
        path = config.work / f"{name}-{first:06d}.npy"
        if not path.exists():
            states = mean_states(judge, tokenizer, texts[first : first + config.chunk])
            np.save(path.with_suffix(".part.npy"), states.numpy().astype(np.float16), allow_pickle=False)
            path.with_suffix(".part.npy").rename(path)
            row = {"read": first + config.chunk, "of": len(texts), "seconds": time.time() - start}
            (config.work / "progress.json").write_text(json.dumps(row | {"part": name}))
        yield np.load(path, allow_pickle=False).astype(np.float64)


def examples(
    judge: LinearHead, tokenizer: Any, texts: Sequence[str], labels: Sequence[int], config: Config, name: str
) -> Examples:
    """Every snippet at every length, with the label of its review."""
    states_ND = np.concatenate(list(read(judge, tokenizer, texts, config, name)))
    return states_ND.reshape(-1, states_ND.shape[-1]), np.repeat(np.array(labels), len(LENGTHS))


def logistic(examples: Examples, penalty: float) -> np.ndarray:
    """Weights and bias [D + 1] of least mean log loss + penalty / 2 |weights|^2 on standardised states."""
    states_ND, label_N = examples
    mean_D, spread_D = states_ND.mean(0), states_ND.std(0) + 1e-6
    scaled_ND, sign_N = (states_ND - mean_D) / spread_D, 2.0 * label_N - 1

    def loss(solution: np.ndarray) -> tuple[float, np.ndarray]:
        margin_N = sign_N * (scaled_ND @ solution[:-1] + solution[-1])
        slope_N = -sign_N / (1 + np.exp(margin_N)) / len(sign_N)
        value = np.logaddexp(0, -margin_N).mean() + penalty / 2 * (solution[:-1] @ solution[:-1])
        return value, np.append(scaled_ND.T @ slope_N + penalty * solution[:-1], slope_N.sum())

    found = optimize.minimize(loss, np.zeros(scaled_ND.shape[1] + 1), jac=True, method="L-BFGS-B").x
    weights_D = found[:-1] / spread_D
    return np.append(weights_D, found[-1] - weights_D @ mean_D)


def log_loss(solution: np.ndarray, examples: Examples) -> float:
    """Mean nats of the labels."""
    states_ND, label_N = examples
    return float(np.logaddexp(0, -(2.0 * label_N - 1) * (states_ND @ solution[:-1] + solution[-1])).mean())


def set_head(judge: LinearHead, solution: np.ndarray) -> None:
    """Put weights and bias into the head."""
    judge.head.weight.copy_(torch.from_numpy(solution[None, :-1]))
    judge.head.bias.copy_(torch.from_numpy(solution[-1:]))


def fit(config: Config) -> dict[str, Any]:
    """Read, fit with each penalty, calibrate on openings of held-out films, save; the figures."""
    from transformers import AutoTokenizer

    configure_runtime(threads=config.threads)
    begin(config)
    judge = LinearHead.of_layers(config.model, config.layers)
    tokenizer = AutoTokenizer.from_pretrained(lm_path(config.model), padding_side="right")
    held = drawn(*part(config.data, JUDGE_HELD_OUT), config, config.held_out)
    fitted = drawn(*part(config.data, FITTED), config, config.reviews)
    held_out = examples(judge, tokenizer, *held, config, "held_out")
    train = examples(judge, tokenizer, *fitted, config, "train")
    solutions = {penalty: logistic(train, penalty) for penalty in config.penalties}
    losses = {penalty: log_loss(solution, held_out) for penalty, solution in solutions.items()}
    best = solutions[min(losses, key=losses.__getitem__)]
    set_head(judge, best)
    judge.save(config.out, model=config.model)
    texts, labels = part(config.data, JUDGE_HELD_OUT)
    short, of_short = game_openings(texts[::2], labels[::2], random.Random(config.seed))
    raw = Classifier(config.out)(short)
    T = temperature(raw, of_short)
    set_head(judge, best / T)
    judge.save(config.out, model=config.model)
    scores = [score / T for score in raw]
    figures = environment() | {
        "command": f"python -m examples.smollm2.fit_judge {' '.join(sys.argv[1:])}",
        "read": len(fitted[0]),
        "held_out_log_loss": losses,
        "temperature": T,
        "held_out_accuracy": accuracy(scores, of_short),
        "held_out_calibration_error": calibration_error(scores, of_short),
        "test": measured(config) if config.test else None,
    }
    (config.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def measured(config: Config) -> dict[str, Any]:
    """The judge beside the pocket judge on the first words of test reviews, which nothing was fitted on."""
    texts, labels = reviews(config.test)
    texts, labels = texts[:: config.test_every], labels[:: config.test_every]
    judges = {"smollm2": Classifier(config.out), "pocket": Classifier(JUDGE)}
    found: dict[str, Any] = {"reviews": len(texts)}
    for count in (8, 16, 40):
        beginnings = [first_words(text, count) for text in texts]
        scores = {name: judge(beginnings) for name, judge in judges.items()}
        found[f"{count} words"] = {
            name: {
                "accuracy": accuracy(of_judge, labels),
                "calibration_error": calibration_error(of_judge, labels),
                "sd_log_odds": float(np.std(of_judge)),
            }
            for name, of_judge in scores.items()
        } | {"correlation": float(np.corrcoef(*scores.values())[0, 1])}
    return found


if __name__ == "__main__":
    main(fit, Config, __doc__)
