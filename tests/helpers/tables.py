"""A run of lookup tables on the task echo, and small texts and tokenizers for runs."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from cory.config.command_line import parse_settings
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.evaluation.config import EvaluationConfig
from cory.functional.kl import KLConfig
from cory.learner.optimizer import LearnerConfig
from cory.rollout.role_exchange import ExchangeConfig
from tests.helpers.models import END

TABLES = Config(
    task="echo",
    task_options=task_options("echo")(),
    policy=PolicyConfig(kind="table"),
    batch=64,
    max_response=(3, 3),
    iterations=60,
    exchange=ExchangeConfig(every=5),
    kl=KLConfig(coef=0.01),
    learner=LearnerConfig(lr=0.1),
    evaluation=EvaluationConfig(queries=64, every=0),
)
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A chat template."""


def flagged(*flags: str, default: Config = TABLES) -> Config:
    """`TABLES`, or other settings, with flags of `cory train`."""
    return Config.from_flat(parse_settings(flags, default=default, command="cory train"), default)


def made_up_reviews(count: int = 200) -> str:
    """JSON lines whose openings differ, so that some test openings are not in train."""
    letters = random.Random(0)
    texts = ("".join(letters.choices("abcdefghij ", k=30)) for _ in range(count))
    return "\n".join(json.dumps({"text": f"film {text}"}) for text in texts)


def tiny_reviews(folder: Path, model: Path, **changes: Any) -> Config:
    """Two policies of a tiny `model` that continue made-up reviews, which are written into `folder`."""
    data = folder / "reviews.jsonl"
    data.write_text(made_up_reviews())
    config = Config(
        task_options=replace(Config().task_options, data=data),
        judge="tests.helpers.scorers:judge",
        policy=PolicyConfig(model=str(model)),
        batch=8,
        iterations=2,
        max_response=(2, 4),
        exchange=ExchangeConfig(every=1),
    )
    return replace(config, **changes)


def letters() -> PreTrainedTokenizerFast:
    """A tokenizer with one id per byte: it reads any text as it was written."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END, chat_template=CHAT)
