"""Hours that the paper's runs need on one H100 of 80 GB: computed, not run.

    python -m benchmarks.speed.paper_hours

Settings are those of the presets, seconds of an iteration those of `benchmarks.speed.memory_table`, with the
micro-batches of the preset. Evaluations before, during and after training sample every policy standalone on
queries of the test and the validation split, and score the responses by it and by its reference. Responses
have full length; judges cost nothing.
"""

import math
from typing import Any, NamedTuple, get_args

from transformers import PretrainedConfig

from benchmarks.speed.memory_table import (
    EXPERIMENTS,
    FLOPS,
    GPT2_LARGE,
    Experiment,
    Method,
    count,
    of_a_decoded_token,
    plan,
)
from benchmarks.speed.workloads import gpt2
from cory.config import presets
from cory.config.schema import Config
from cory.evaluation.evaluator import Split

CARD = 80
SPLITS = get_args(Split)
LLAMA_7B, LLAMA_13B = (experiment.config for experiment in EXPERIMENTS[1:3])


class Arm(NamedTuple):
    """A preset and the model it trains."""

    preset: str
    config: PretrainedConfig
    prompt: int
    """Tokens of the longest prompt."""
    method: Method = "full"
    model: str | None = None
    """Where it is not the preset's."""


ARMS = (
    Arm("imdb", GPT2_LARGE, 8 + 16 + 18),
    Arm("imdb-ppo", GPT2_LARGE, 8),
    Arm("imdb-ppo-xl", gpt2(48, 1600, 25), 8),
    Arm("imdb-released", gpt2(12, 768, 12), 7 + 15 + 17),
    Arm("imdb-released-ppo", gpt2(24, 1024, 16), 7),
    Arm("gsm8k", LLAMA_7B, 512 + 256, "lora4"),
    Arm("gsm8k-ppo", LLAMA_7B, 512, "lora4"),
    Arm("gsm8k", LLAMA_13B, 512 + 256, "lora4", "Llama-2-13b-chat"),
    Arm("gsm8k-ppo", LLAMA_13B, 512, "lora4", "Llama-2-13b-chat"),
)
"""An observer reads the query, the pioneer's response, and on IMDB 10 words and the query again; on GSM8K 512
tokens are the words and the 1-shot prompt."""


def line_of(arm: Arm) -> dict[str, Any]:
    """A line of the table: peak in bytes, seconds of an iteration, of all evaluations and of the run.

    Raises ValueError if the card does not hold the run.
    """
    run = presets.get(arm.preset)
    response = run.max_response[1]
    experiment = Experiment(
        arm.model or run.policy.model.removesuffix("-hf").removeprefix("meta-llama/"),
        run.task,
        arm.config,
        run.batch,
        run.batch // run.learner.microbatches,
        arm.prompt + response,
        response,
        seats=run.seats,
    )
    line = plan(experiment, arm.method, checkpointing=False, sizes=(CARD,))
    if line["card"] is None:
        raise ValueError(f"{arm.preset} with {experiment.model} does not fit a card of {CARD} GB")
    evaluations = evaluation_seconds(arm, experiment, run, rows=line["sampling_rows"])
    return {
        "preset": arm.preset,
        "model": experiment.model,
        "peak": max(line["sampling"], line["learning"]),
        "iteration": line["seconds"],
        "evaluations": evaluations,
        "run": run.iterations * line["seconds"] + evaluations,
    }


def evaluation_seconds(arm: Arm, experiment: Experiment, run: Config, *, rows: int) -> float:
    """Seconds of all evaluations of a run whose passes hold `rows` rows."""
    settings, counts = run.evaluation, count(arm.config, lora=arm.method != "full")
    responses = settings.queries * settings.samples
    passes = math.ceil(responses / rows)
    decode = passes * experiment.response * of_a_decoded_token(experiment, arm.method, counts)
    scoring = 2 * 2 * counts.all * responses * experiment.longest / FLOPS
    of_reference_and_policies = 1 + run.seats * math.ceil(run.iterations / settings.every)
    return len(SPLITS) * of_reference_and_policies * (decode + scoring)


def markdown(lines: list[dict[str, Any]]) -> str:
    """The table; peaks in GB (10^9 bytes)."""
    text = [
        "| preset | model | peak, GB | s an iteration | s of evaluations | minutes a run |",
        "|---|---|--:|--:|--:|--:|",
    ]
    text += [
        f"| {line['preset']} | {line['model']} | {line['peak'] / 1e9:.0f} | {line['iteration']:.1f} "
        f"| {line['evaluations']:.0f} | {line['run'] / 60:.0f} |"
        for line in lines
    ]
    return "\n".join(text)


if __name__ == "__main__":
    print(markdown([line_of(arm) for arm in ARMS]))
