r"""Sums scored by a rule and a learned judge together: is the result right, and are steps shown?

    python -m examples.hybrid_sums                     # fits the judge of style, in seconds
    cory train --preset pocket-arithmetic --task examples/hybrid_sums.py:Task \
        --judge "examples/hybrid_sums.py:correct + 0.5*examples/style_judge" --judge.output probability

The judge is a linear head on the pocket model's mean state, fitted on answers with steps and answers without.
It reads no arithmetic, so steps may be wrong or repeated. Study `hybrid-sums` asks what comes of the two.

Shapes: N answers, D width.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cory.judges.classifier import Classifier
from cory.judges.linear_head import LinearHead
from cory.pocket import lm_path
from cory_env.grading.numeric_answers import is_correct
from cory_env.grading.reward_functions import Cases, Judge, ask
from cory_env.tasks import arithmetic
from cory_env.tokenizer import Tokenizer
from cory_env.types import Query, Response

MODEL, LAYERS = "pocket-arithmetic", 2
TEXT = "Question: {}\nAnswer: {}"
"""What the judge of style reads, as in the model's corpus."""


class Task(arithmetic.Task):
    """The worked sums of the preset `pocket-arithmetic`, scored by the judge of the run."""

    def __init__(self, tokenizer: Tokenizer | None = None, judge: Judge | None = None) -> None:
        super().__init__(tokenizer, worked=True, digits=2, terms=4, signs="+-")
        self.judge = judge or correct
        self.correct_from = getattr(self.judge, "correct_from", None)

    def score(self, queries: Sequence[Query], responses: Sequence[Response]) -> list[float]:
        """Return the judge's scores of sums and answers; its column `answer` has the worked solutions."""
        pairs = list(zip(queries, responses, strict=True))
        cases = Cases(
            prompts=[query.text for query in queries],
            answers=[response.text for response in responses],
            texts=[TEXT.format(query.text, response.text.strip()) for query, response in pairs],
            columns={"answer": [query.row["answer"] for query in queries]},
        )
        return list(ask(self.judge, cases))


def correct(completions: Sequence[str], answer: Sequence[str], **_columns: Any) -> list[float]:
    """Score 1 for the right final number, else 0."""
    return [float(is_correct(text, worked)) for text, worked in zip(completions, answer, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the judge of style is fitted."""

    out: Path = Path("examples/style_judge")
    """Folder the judge is written to."""

    answers: int = 2_000
    """Answers that it is fitted on, half of them with steps; as many are held out."""

    penalty: float = 0.01
    """Weight of the squared norm."""


def fit(config: Config) -> dict[str, Any]:
    """Fit and save the judge; its accuracy on answers that it was not fitted on."""
    from examples.smollm2.fit_judge import logistic, set_head

    judge = LinearHead.of_layers(MODEL, LAYERS)
    texts, labels = drawn(2 * config.answers)
    states_ND = mean_states(judge, texts[: config.answers])
    set_head(judge, logistic((states_ND, np.array(labels[: config.answers])), config.penalty))
    judge.save(config.out, model=MODEL)
    scores = Classifier(config.out)(texts[config.answers :])
    right = [(score > 0) == label for score, label in zip(scores, labels[config.answers :], strict=True)]
    return {"out": config.out, "held_out_accuracy": sum(right) / len(right)}


def drawn(count: int) -> tuple[list[str], list[bool]]:
    """Sums and answers as in the model's corpus, and whether each shows steps."""
    from examples.pocket_models.arithmetic.problems import Shares, answer, small_sum

    rng = random.Random("style")
    texts, labels = [], []
    for i in range(count):
        problem, done = small_sum(rng)
        texts.append(TEXT.format(problem, answer(done, rng, Shares(worked=i % 2))))
        labels.append(bool(i % 2))
    return texts, labels


def mean_states(judge: LinearHead, texts: Sequence[str]) -> np.ndarray:
    """The mean state of each text [N, D]."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(lm_path(MODEL), padding_side="right")
    rows = tokenizer(list(texts), padding=True, return_tensors="pt")
    mean_ND: np.ndarray = judge.mean(rows["input_ids"], rows["attention_mask"]).double().numpy()
    return mean_ND


if __name__ == "__main__":
    import tyro

    print(json.dumps(fit(tyro.cli(Config, description=__doc__)), default=str))
