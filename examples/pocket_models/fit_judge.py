"""Fit the pocket judge.

    python -m examples.pocket_models.fit_judge --data train.parquet --unlabelled unsup.parquet

A GPT-2 sequence classifier that starts as the first blocks of the pocket LM. In training, every token of a
snippet predicts the label of its review, so that one snippet trains all its beginnings; the judge reads the
last token. Labelled reviews are few: an n-gram teacher, fitted on the judge's own labelled rows, labels three
times as many unlabelled ones with their probability of being positive.

Shapes: B rows, T tokens, K labels.
"""

import json
import math
import random
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from cory.judges.classifier import Classifier
from cory.pocket import JUDGE, LM
from examples.pocket_models import fit_second_judge
from examples.pocket_models.calibrate import accuracy, calibration_error, temperature
from examples.pocket_models.corpus import JUDGE as FITTED
from examples.pocket_models.corpus import JUDGE_HELD_OUT, game_openings, part, reviews, snippet

SIZES = (24, 48, 96, 256)
"""Row lengths in tokens; the last is the judge's window."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Data, training length and output folder."""

    data: Path
    """Parquet file of reviews with the columns `text`, `label` (0, 1) and `movie`."""

    unlabelled: Path | None = None
    """Parquet file of reviews that a teacher labels; without it there is no teacher, and the judge is
    weaker."""

    lm: Path = LM
    """The language model whose first blocks, embeddings and tokenizer the judge starts from."""

    out: Path = JUDGE
    """Folder the judge is written to, in fp16."""

    work: Path = Path("runs/fit_judge")
    """Folder of the progress file."""

    blocks: int = 2
    """Number of transformer blocks."""

    epochs: int = 1
    """Passes over the reviews, each on freshly drawn snippets."""

    whole_every: int = 10
    """One review in this many is also read whole, up to the window, in every epoch."""

    opening: float = 0.5
    """Probability that a snippet is the beginning of its review."""

    words: tuple[int, int] = (4, 60)
    """Shortest and longest snippet."""

    first_token: int = 4
    """Tokens before this one do not predict the label: the text so far is too short."""

    tokens: int = 4096
    """Tokens per step, padding included."""

    lr: float = 5e-4
    """AdamW's learning rate: a linear warm-up over the first tenth, then a cosine to zero."""

    weight_decay: float = 0.1
    dropout: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens < SIZES[-1]:
            raise ValueError(f"tokens is {self.tokens}; a batch must hold a whole window of {SIZES[-1]}")


def make_model(config: Config) -> Any:
    """A classifier {0: negative, 1: positive} whose trunk is the first `config.blocks` blocks of the LM."""
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2ForSequenceClassification

    lm: Any = AutoModelForCausalLM.from_pretrained(config.lm, dtype=torch.float32)
    shape = GPT2Config.from_dict(
        lm.config.to_dict()
        | {
            "n_layer": config.blocks,
            "id2label": {0: "negative", 1: "positive"},
            "label2id": {"negative": 0, "positive": 1},
            "pad_token_id": lm.config.eos_token_id,
            "embd_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
        }
    )
    model = GPT2ForSequenceClassification(shape)
    names = model.transformer.state_dict()
    model.transformer.load_state_dict({k: v for k, v in lm.transformer.state_dict().items() if k in names})
    return model


Batch = tuple[Tensor, Tensor]
"""Ids [B, T], padded with -1, and labels [B]."""


def batches(
    texts: list[str], labels: list[float], tokenizer: Any, config: Config, *, epoch: int
) -> list[Batch]:
    """One epoch, shuffled: a fresh snippet of every review, and some reviews whole.

    T is one of `SIZES` and B * T = `config.tokens`, so that the step is compiled once per size; rows that do
    not fill a batch are left out.
    """
    rng = random.Random(f"{config.seed} {epoch}")
    drawn = [snippet(text, rng, words=config.words, opening=config.opening) for text in texts]
    whole = range(epoch % config.whole_every, len(texts), config.whole_every)
    rows = tokenizer(drawn + [texts[i] for i in whole], truncation=True, max_length=SIZES[-1])["input_ids"]
    labelled = list(zip(rows, labels + [labels[i] for i in whole], strict=True))
    rng.shuffle(labelled)
    found: list[Batch] = []
    for shorter, T in pairwise((config.first_token, *SIZES)):
        fits = [(ids + [-1] * (T - len(ids)), label) for ids, label in labelled if shorter < len(ids) <= T]
        B = config.tokens // T
        for start in range(0, len(fits) - B + 1, B):
            ids, label = zip(*fits[start : start + B], strict=True)
            found.append((torch.tensor(ids), torch.tensor(label)))
    rng.shuffle(found)
    if not found:
        raise ValueError(
            f"{len(texts)} reviews do not fill a batch of {config.tokens} tokens; lower --tokens"
        )
    return found


def label_loss(model: Any, ids_BT: Tensor, label_B: Tensor, *, first_token: int) -> Tensor:
    """Mean nats per predicting token; the label may be a probability.

    Padding (-1) follows the tokens and does not affect them: the trunk is causal.
    """
    with torch.autocast(ids_BT.device.type, torch.bfloat16):
        logits_BTK = model.score(model.transformer(input_ids=ids_BT.clamp(min=0)).last_hidden_state)
    odds_BT = (logits_BTK[:, first_token:, 1] - logits_BTK[:, first_token:, 0]).float()
    mask_BT = ids_BT[:, first_token:] >= 0
    target_BT = label_B[:, None].expand_as(odds_BT).float()
    nats_BT = binary_cross_entropy_with_logits(odds_BT, target_BT, reduction="none")
    return (nats_BT * mask_BT).sum() / mask_BT.sum()


def label_by_teacher(texts: list[str], labels: list[int], unlabelled: Path) -> tuple[list[str], list[float]]:
    """Reviews of `unlabelled` and their P(positive), by n-grams fitted on labelled `texts`."""
    settings = fit_second_judge.Config(data=unlabelled)
    rows_NF, label_N = fit_second_judge.design(texts, settings), np.array(labels)
    ratio_F = fit_second_judge.log_count_ratio(rows_NF, label_N)
    weights_F, bias = fit_second_judge.logistic((rows_NF @ sparse.diags(ratio_F)).tocsr(), label_N, settings)
    more, _ = reviews(unlabelled)
    odds_N = fit_second_judge.design(more, settings) @ (weights_F * ratio_F) + bias
    return more, (1 / (1 + np.exp(-odds_N))).tolist()


def make_optimizer(model: Any, config: Config) -> torch.optim.Optimizer:
    """AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.98), fused=True)


def train(config: Config, model: Any, tokenizer: Any) -> None:
    """Train `model` in place; a line of progress every 20 steps."""
    texts, labels = part(config.data, FITTED)
    if config.unlabelled is not None:
        more, more_labels = label_by_teacher(texts, labels, config.unlabelled)
        texts, labels = texts + more, labels + more_labels
    optimizer = make_optimizer(model, config)
    step_loss = torch.compile(label_loss)
    step, start = 0, time.time()
    with (config.work / "progress.jsonl").open("w") as progress:
        for epoch in range(config.epochs):
            plan = batches(texts, labels, tokenizer, config, epoch=epoch)
            for done, (ids_BT, label_B) in enumerate(plan):
                clock = (epoch + done / len(plan)) / config.epochs
                for group in optimizer.param_groups:
                    group["lr"] = (
                        config.lr * min(1.0, clock / 0.1 + 1e-3) * 0.5 * (1 + math.cos(math.pi * clock))
                    )
                loss: Any = step_loss(model, ids_BT, label_B, first_token=config.first_token)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                if step % 20 == 0:
                    rate = step * config.tokens / (time.time() - start)
                    row = {
                        "step": step,
                        "epoch": epoch + done / len(plan),
                        "loss": loss.item(),
                        "tokens_per_s": rate,
                    }
                    print(json.dumps(row), file=progress, flush=True)


def calibrate(config: Config, model: Any) -> dict[str, float]:
    """Divide the head by the temperature of held-out openings, which calibrates the softmax; its metrics."""
    short, labels = game_openings(*part(config.data, JUDGE_HELD_OUT), random.Random(config.seed))
    T = temperature(Classifier(config.out)(short), labels)
    with torch.no_grad():
        model.score.weight.div_(T)
    model.save_pretrained(config.out)
    scores = Classifier(config.out)(short)
    error = calibration_error(scores, labels)
    return {
        "temperature": T,
        "held_out_accuracy": accuracy(scores, labels),
        "held_out_calibration_error": error,
    }


def fit(config: Config) -> None:
    """Train, save, calibrate, save again."""
    from transformers import AutoTokenizer

    config.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    model, tokenizer = make_model(config), AutoTokenizer.from_pretrained(config.lm)
    tokenizer.save_pretrained(config.out)  # before use: a fast tokenizer remembers its last truncation
    start = time.time()
    train(config, model, tokenizer)
    model.half().save_pretrained(config.out)
    result = asdict(config) | calibrate(config, model) | {"seconds": time.time() - start}
    (config.work / "config.json").write_text(json.dumps(result, indent=1, default=str))
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    import tyro

    fit(tyro.cli(Config, description=__doc__))
