"""Iterations of one policy by the GRPO of TRL 1.16, one for each line read from standard input.

    sh benchmarks/speed/baselines/setup.sh
    (cat job.json; yes go | head -5) | .venv-trl-grpo/bin/python -m benchmarks.speed.baselines.trl_grpo

The first line is the job, as JSON on one line:

    {"folder": "/tmp/smollm2", "prompt_lengths": [4, 5, 6, 7], "group": 8, "response": 12, "epochs": 4,
     "kl_coef": 0.04, "threads": 2}

`folder` holds a model and its tokenizer; every prompt has `group` responses and the batch is one minibatch.
Every further line is one batch: sampling, the reference's log-probs and `epochs` optimiser steps. Replies are
those of trl_ppo.py. The reward takes no time.
"""

import itertools
import tempfile
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from benchmarks.speed.baselines.step_per_line import Reply, StepPerLine, serve
from benchmarks.speed.process_memory import resident


def prompts(tokenizer: Any, lengths: list[int]) -> list[str]:
    """Texts of so many tokens, of words that are one token each."""
    words = (tokenizer.decode([i]) for i in itertools.count(1000))
    single = (word for word in words if word.startswith(" ") and word[1:].isalpha() and word.isascii())
    texts = ["".join(itertools.islice(single, n)) for n in lengths]
    counts = [len(tokenizer(text)["input_ids"]) for text in texts]
    if counts != lengths:
        raise ValueError(f"prompts have {counts} tokens instead of {lengths}")
    return texts


def train(job: dict[str, Any], reply: Reply) -> None:
    """Train for as long as lines come."""
    group, lengths = job["group"], job["prompt_lengths"]
    rows = group * len(lengths)
    counts = {"tokens": rows * job["response"], "samples": rows}
    callback = StepPerLine(
        reply,
        resident("VmRSS"),
        counts,
        samples=(GRPOTrainer, "_generate_single_turn"),
        steps=job["epochs"],
    )
    torch.set_num_threads(job["threads"])
    tokenizer = AutoTokenizer.from_pretrained(job["folder"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=1,
            steps_per_generation=1,
            num_generations=group,
            num_iterations=job["epochs"],
            max_completion_length=job["response"],
            beta=job["kl_coef"],
            max_steps=10_000,
            gradient_checkpointing=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(job["folder"], dtype=torch.float32),
            reward_funcs=lambda completions, **_: [float(len(set(text)) % 7) for text in completions],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": prompts(tokenizer, lengths) * 64}),
            processing_class=tokenizer,
            callbacks=[callback],
        ).train()


if __name__ == "__main__":
    serve(train)
