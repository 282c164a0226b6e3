"""Prepare a model for a task by supervised learning on prompts and completions.

    python -m examples.smollm2.warm_start --data runs/words --until 0.2

A policy learns only from responses that are scored well now and then. The data are files of prompts and
completions, for any task; transformers' Trainer does the rest, with the loss on the completion alone. With
`--until` training ends once that share of the validation answers is right in one try at temperature 1: a
model that knows all answers has nothing left to learn from rewards.

Shapes: B rows, T tokens.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cory import rng
from cory.pocket import MODELS
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.loading import check_device
from cory.runtime.cpu import configure_runtime
from cory.runtime.device import default_device
from cory_env.arrays import pack
from cory_env.data import splits, tables
from cory_env.grading.numeric_answers import is_correct
from examples.smollm2 import main

COLUMNS = {"prompt": ("prompt",), "completion": ("completion",)}
RESULT = "warm_start.json"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Data, model, training and where it ends."""

    data: Path
    """A JSONL, CSV or parquet file with columns `prompt` and `completion`, or a folder of such files whose
    names start with `train`, `test` and perhaps `validation`."""

    model: str = "smollm2"
    """The model to start from: a name, a folder or a GGUF file."""

    out: Path = MODELS["smollm2-words"]
    """Folder the model is written to, in from_pretrained layout."""

    until: float | None = None
    """Share of validation answers, numbers, that must be right in one try at temperature 1 to end; without it
    all epochs are made."""

    check_every: int = 20
    """Steps between these checks."""

    checked: int = 64
    """Validation prompts that are answered at a check."""

    max_new_tokens: int = 32
    """Longest answer at a check."""

    epochs: float = 3.0
    batch: int = 8
    lr: float = 5e-5
    device: str = "auto"
    """Where to train; `auto` is the accelerator if there is one, else cpu."""

    threads: int = 1
    seed: int = 0


def pairs_by_split(data: Path) -> dict[str, list[tables.Row]]:
    """Prompts and completions of train and validation, divided as the tasks divide; test is left alone."""
    rows, _ = splits.separate(tables.read_rows(data, COLUMNS), "prompt", where=data)
    train, validation = rows["train"], rows.get("validation", [])
    if not validation:
        train, validation = splits.take_validation(train, lambda row: row["prompt"])
    return {"train": train, "validation": validation}


def example(row: tables.Row, tokenizer: Any) -> dict[str, list[int]]:
    """Ids of prompt and completion, with EOS, and the labels: -100 on the prompt, which has no loss."""
    prompt = tokenizer(row["prompt"])["input_ids"]
    answer = tokenizer(row["completion"], add_special_tokens=False)["input_ids"]
    answer = [*answer, tokenizer.eos_token_id]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def share_right(policy: Policy, tokenizer: Any, pairs: Sequence[Mapping[str, str]], config: Config) -> float:
    """The share of prompts whose sampled answer ends in the number that the completion ends in."""
    ids_BT, length_B = (
        torch.from_numpy(a) for a in pack([tokenizer(p["prompt"])["input_ids"] for p in pairs], policy.pad)
    )
    uniforms_BT = rng.uniforms(
        (config.seed, "warm start"), torch.arange(len(pairs)).numpy(), config.max_new_tokens
    )
    sampled = policy.sample(
        ids_BT,
        length_B,
        uniforms_BT=torch.from_numpy(uniforms_BT),
        caps_B=torch.full((len(pairs),), config.max_new_tokens),
    )
    texts = tokenizer.batch_decode(sampled.response_BT, skip_special_tokens=True)
    return sum(is_correct(t, p["completion"]) for t, p in zip(texts, pairs, strict=True)) / len(pairs)


def warm_start(config: Config) -> dict[str, Any]:
    """Train, write the model; the figures, which are also written beside it."""
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainerCallback, TrainingArguments

    configure_runtime(threads=config.threads)
    device = default_device() if config.device == "auto" else config.device
    check_device(device)
    policy = CausalLMPolicy.load("warm_start", config.model, device=device)
    model, tokenizer = policy.model, policy.tokenizer
    pairs = pairs_by_split(config.data)
    checked = pairs["validation"][: config.checked]
    checks: dict[int, float] = {}

    class Stop(TrainerCallback):
        """Ends the training when enough answers are right."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ARG002
            if config.until is not None and state.global_step % config.check_every == 0:
                model.eval()
                checks[state.global_step] = share_right(policy, tokenizer, checked, config)
                model.train()
                print(json.dumps({"step": state.global_step, "right": checks[state.global_step]}), flush=True)
                control.should_training_stop |= checks[state.global_step] >= config.until

    arguments = TrainingArguments(
        output_dir=str(config.out.with_name(f".{config.out.name}-training")),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch,
        learning_rate=config.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        seed=config.seed,
        save_strategy="no",
        logging_steps=10,
        report_to=[],
        use_cpu=model.device.type == "cpu",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[example(row, tokenizer) for row in pairs["train"]],
        eval_dataset=[example(row, tokenizer) for row in checked],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        callbacks=[Stop()],
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    result = {
        **asdict(config),
        "steps": trainer.state.global_step,
        "examples": trainer.state.global_step * config.batch,
        "validation_loss": {"before": before, "after": trainer.evaluate()["eval_loss"]},
        "right_by_step": checks,
    }
    model.save_pretrained(config.out)
    tokenizer.save_pretrained(config.out)
    (config.out / RESULT).write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main(warm_start, Config, __doc__)
