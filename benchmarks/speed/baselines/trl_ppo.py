"""Iterations of one policy by the PPO of TRL 1.12, one for each line read from standard input.

    sh benchmarks/speed/baselines/setup.sh
    (cat job.json; yes go | head -5) | .venv-trl/bin/python -m benchmarks.speed.baselines.trl_ppo

The first line is the job, as JSON on one line:

    {"architecture": "gpt2", "shape": {"n_layer": 4, "n_embd": 256, "n_head": 4}, "prompt_lengths": [2, 7, 5],
     "response": 10, "epochs": 4, "threads": 2, "chunk": 3}

`shape` holds arguments of the configuration class; `prompt_lengths` one entry per row of the batch; `chunk`
is the number of rows per forward and backward pass. The reply holds the versions. Every further line is one
step of `PPOTrainer.train`, with a reply of its `seconds`, the seconds in `generate` as phase `sample`, the
`tokens` and `samples` written, `peak_bytes`, the largest resident memory of the process, and `idle_bytes`,
that after the imports.

Weights and prompts are random. As TRL requires, a second model of the same shape with a scalar head predicts
the values and is trained beside the policy; a third is the reference. The scorer takes no time.
"""

import tempfile
from collections.abc import Callable
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
)
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

from benchmarks.speed.baselines.step_per_line import StepPerLine, serve
from benchmarks.speed.process_memory import resident


class EvenIds(nn.Module):
    """A backbone that maps every token to one number: 1 for an even id, else 0."""

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(hidden_states=[(input_ids % 2 == 0).float()[..., None]])


class Scorer(nn.Module):
    """A reward model in the form that TRL reads: the score is its head's output at the last token."""

    base_model_prefix = "backbone"

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.score = EvenIds(), nn.Identity()


def padding_tokenizer(pad: int) -> PreTrainedTokenizerFast:
    """A tokenizer that pads on the left, which is all that TRL uses it for."""
    inner = Tokenizer(models.WordLevel({"<eos>": 0, "<pad>": pad}, unk_token="<eos>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )


def prompts(lengths: list[int], vocabulary: int) -> Dataset:
    """Random ids, neither EOS nor padding among them."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(1, vocabulary - 1, (n,), generator=generator).tolist() for n in lengths]
    return Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]})


def make_trainer(
    job: dict[str, Any], config: PretrainedConfig, callback: StepPerLine, folder: str
) -> PPOTrainer:
    """TRL's defaults except for what makes the workload equal: four epochs, one minibatch, temperature 1."""
    B, chunk = len(job["prompt_lengths"]), job["chunk"]
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
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    kinds: tuple[Any, ...] = (AutoModelForCausalLM, AutoModelForCausalLM, AutoModelForSequenceClassification)
    policy, reference, value = (kind.from_config(config, attn_implementation="eager") for kind in kinds)
    reference.load_state_dict(policy.state_dict())
    return PPOTrainer(
        args=arguments,
        processing_class=padding_tokenizer(config.pad_token_id),
        model=policy,
        ref_model=reference,
        value_model=value,
        reward_model=Scorer(),
        train_dataset=prompts(job["prompt_lengths"], config.vocab_size),
        callbacks=[callback],
    )


def train(job: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
    """Train for as long as lines come."""
    rows = len(job["prompt_lengths"])
    counts = {"tokens": rows * job["response"], "samples": rows}
    callback = StepPerLine(reply, resident("VmRSS"), counts, samples=(ppo_trainer, "batch_generation"))
    torch.manual_seed(0)
    torch.set_num_threads(job["threads"])
    config = AutoConfig.for_model(job["architecture"], num_labels=1, **job["shape"])
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, 0, config.vocab_size - 1
    with tempfile.TemporaryDirectory() as folder:
        make_trainer(job, config, callback, folder).train()


if __name__ == "__main__":
    serve(train)
