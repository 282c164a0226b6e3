"""A small language model for a worked example: pretrained in minutes on documents that the example draws.

The documents show every way to respond, right and wrong ones, so that the model is able to do the task and
does not do it well yet. A third has an earlier response before it, as observers read it.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import cory
from examples.pocket_models.arithmetic.pretrain import packed
from examples.pocket_models.corpus import train_tokenizer
from examples.pocket_models.pretrain import Recipe, fit
from examples.work import begin

DOCUMENTS = 4000
"""Documents that the tokenizer is fitted on."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be chosen on the command line."""

    run: Path
    """Run directory; the small model is kept beside it, in RUN-model."""

    model: str | None = None
    """A folder or hub name, instead of the small model."""

    data: str | None = None
    """A file of your own with the columns of the example, instead of the generated rows."""

    iterations: int = 20
    """Iterations of training."""

    batch: int = 64
    """Games per iteration."""

    queries: int = 256
    """Held-out queries of an evaluation."""

    steps: int = 600
    """Optimiser steps of the pretraining."""


def small_model(
    options: Options, document: Callable[[random.Random], str], *, chat_template: str | None = None
) -> str:
    """The folder of the model, pretrained on documents unless it is there; or the one that was asked for."""
    if options.model is not None:
        return options.model
    from transformers import AutoTokenizer

    work = options.run.with_name(f"{options.run.name}-model")
    recipe = Recipe(
        work=work, out=work / "model", steps=options.steps, context=256, layers=3, width=128, compiled=False
    )
    begin(recipe)
    if not (recipe.out / "model.safetensors").exists():
        print(f"pretraining a small model in {work}, {recipe.steps} steps", flush=True)
        drawn = random.Random("tokenizer")
        train_tokenizer((document(drawn) for _ in range(DOCUMENTS)), work, vocab_size=600)
        tokenizer = AutoTokenizer.from_pretrained(work)
        tokenizer.chat_template = chat_template
        end = tokenizer.eos_token_id

        def batches(*, start: int) -> Iterator:
            for step in count(start):
                drawn = random.Random(step)
                ids = (tokenizer(document(drawn))["input_ids"] for _ in count())
                yield packed(ids, rows=recipe.rows, length=128, end=end)

        fit(recipe, tokenizer, batches)
    return str(recipe.out)


def settings(options: Options) -> dict[str, Any]:
    """Settings of the run that the examples share; the rest is the preset `pocket`, PPO with two seats."""
    return {
        "kl": {"coef": 0.02},
        "iterations": options.iterations,
        "batch": options.batch,
        "evaluation": {"queries": options.queries, "every": options.iterations},
        "run": options.run,
    }


def print_gain(run: cory.Run) -> None:
    """Print the held-out scores of reference and policies, standalone, and where to read on."""
    for name in ("reference", *run.policies):
        scores = run.metrics[f"eval/{name}/task_reward"].dropna()
        print(f"{name}: {scores.iloc[0]:.3f} -> {scores.iloc[-1]:.3f}")
    print(f"report: {run.path / 'report.html'}")
