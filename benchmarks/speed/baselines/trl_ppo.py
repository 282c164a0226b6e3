"""Iterations of one policy by the PPO of TRL 1.12, one for each line that is read.

    sh benchmarks/speed/baselines/setup.sh
    (cat job.json; yes go | head -5) | .venv-peers/bin/python -m benchmarks.speed.baselines.trl_ppo

The first line is the job, as JSON on one line:

    {"architecture": "gpt2", "shape": {"n_layer": 4, "n_embd": 256, "n_head": 4}, "prompt_lengths": [2, 7, 5],
     "response": 10, "epochs": 4, "precision": "float32"}

`shape` is what the configuration class is called with; `prompt_lengths` has a row of the batch each. Also:
`attention` (eager), `threads` (torch's own choice), `chunk` rows per forward and backward pass (all),
`device` (cpu, or cuda). It is answered with the versions. Every further line is one step of
`PPOTrainer.train`, answered with its `seconds`, those in `generate` among them as `sample`, how many `tokens`
and `samples` were written, `peak_bytes`, the resident memory of the process at most, and `idle_bytes`, that
after the imports.

Weights and prompts are random. As TRL wants it, a second model of the same shape, with a head for one number,
expects the values and is learned beside the policy; a third is the reference. The scorer costs nothing.
bfloat16 is asked for as `accelerate launch --mixed_precision bf16` does: `bf16=True` alone changes nothing in
this trainer. It reaches the passes that are learned from, neither `generate` nor the statistics.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer


class EvenIds(nn.Module):
    """A backbone that turns every token into one number: 1 for an even id, else 0."""

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(hidden_states=[(input_ids % 2 == 0).float()[..., None]])


class Scorer(nn.Module):
    """A reward model in the form that TRL reads: the score is what its head says of the last token."""

    base_model_prefix = "backbone"

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.score = EvenIds(), nn.Identity()


class Turns(TrainerCallback):
    """Waits for a line before every step and answers it behind it; no more lines, no more steps."""

    def __init__(self, answer: Callable[[dict[str, Any]], None], idle: int, work: dict[str, int]) -> None:
        """`work` is what every answer says of a step, beside its time and memory."""
        self.answer, self.idle, self.work = answer, idle, work
        self.sampling = 0.0
        generate = ppo_trainer.batch_generation

        def timed(*given: Any, **named: Any) -> Any:
            began = perf_counter()
            told = generate(*given, **named)
            self.sampling += perf_counter() - began
            return told

        ppo_trainer.batch_generation = timed

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        names = ("trl", "transformers", "torch", "accelerate")
        self.wait({"threads": torch.get_num_threads(), "versions": {name: version(name) for name in names}})

    def on_step_end(self, *_: Any, **__: Any) -> None:
        seconds = perf_counter() - self.began
        memory = {"peak_bytes": resident("VmHWM"), "idle_bytes": self.idle}
        self.wait({"seconds": seconds, "phases": {"sample": self.sampling}, **self.work, **memory})

    def wait(self, told: dict[str, Any]) -> None:
        """Answer; go on with the next line."""
        self.answer(told)
        if not sys.stdin.readline():
            os._exit(0)
        self.sampling, self.began = 0.0, perf_counter()


def resident(entry: str) -> int:
    """Bytes of this process in memory: `VmRSS` now, `VmHWM` at most since it began (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{entry}:"))


def padding_tokenizer(pad: int) -> PreTrainedTokenizerFast:
    """All that TRL asks of a tokenizer: to pad on the left."""
    inner = Tokenizer(models.WordLevel({"<eos>": 0, "<pad>": pad}, unk_token="<eos>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )


def prompts(lengths: list[int], vocabulary: int) -> Dataset:
    """Random ids, neither EOS nor padding among them."""
    drawn = torch.Generator().manual_seed(0)
    rows = [torch.randint(1, vocabulary - 1, (n,), generator=drawn).tolist() for n in lengths]
    return Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]})


def trainer(job: dict[str, Any], config: PretrainedConfig, turns: Turns, folder: str) -> PPOTrainer:
    """TRL's own defaults but for what makes the work ours: four epochs, one minibatch, temperature 1."""
    B = len(job["prompt_lengths"])
    chunk = job.get("chunk") or B
    arguments = PPOConfig(
        output_dir=folder,
        per_device_train_batch_size=chunk,
        gradient_accumulation_steps=B // chunk,
        local_rollout_forward_batch_size=chunk,
        total_episodes=B * 10_000,
        num_mini_batches=1,
        num_ppo_epochs=job["epochs"],
        response_length=job["response"],
        temperature=1.0,
        num_sample_generations=0,
        gradient_checkpointing=False,
        bf16=job["precision"] == "bfloat16",
        use_cpu=job.get("device", "cpu") == "cpu",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    made = [
        kind.from_config(config, attn_implementation=job.get("attention", "eager"))
        for kind in (AutoModelForCausalLM, AutoModelForCausalLM, AutoModelForSequenceClassification)
    ]
    made[1].load_state_dict(made[0].state_dict())
    return PPOTrainer(
        args=arguments,
        processing_class=padding_tokenizer(config.pad_token_id),
        model=made[0],
        ref_model=made[1],
        value_model=made[2],
        reward_model=Scorer(),
        train_dataset=prompts(job["prompt_lengths"], config.vocab_size),
        callbacks=[turns],
    )


def serve(job: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
    """Train for as long as lines come."""
    rows = len(job["prompt_lengths"])
    turns = Turns(answer, resident("VmRSS"), {"tokens": rows * job["response"], "samples": rows})
    torch.manual_seed(0)
    if job["precision"] == "bfloat16":
        os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
    if job.get("threads"):
        torch.set_num_threads(job["threads"])
    config = AutoConfig.for_model(job["architecture"], num_labels=1, **job["shape"])
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, 0, config.vocab_size - 1
    with tempfile.TemporaryDirectory() as folder:
        trainer(job, config, turns, folder).train()


if __name__ == "__main__":
    out = sys.stdout
    with redirect_stdout(sys.stderr):  # the trainer prints its numbers
        serve(json.loads(sys.stdin.readline()), lambda told: print(json.dumps(told), file=out, flush=True))
