"""Hugging Face sequence classifier, or a linear head on a language model, as a judge.

Shapes: B texts, T tokens, K labels.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from cory import pocket
from cory.judges.linear_head import LinearHead, settings_of
from cory.runtime import hub
from cory_env.nearest import did_you_mean_path

UNLIMITED = 1e9
"""Window from which a tokenizer says that it has no limit."""

Output = Literal["log_odds", "logit", "probability"]


class Classifier:
    """Scores texts by one label of a sequence classifier, in float32.

    `log_odds` is log P(label) - log(1 - P(label)), `logit` the raw output of the label. P is the softmax over
    the labels; it is the sigmoid of the logit if the labels do not exclude each other, by `problem_type` in
    the model's configuration, or if there is one label, as in reward models. Of a text longer than the
    classifier's window it reads the end, where the response is. Code that comes with a model is never run.
    """

    def __init__(
        self,
        folder_or_name: str | Path,
        *,
        label: str | int = "positive",
        output: Output = "log_odds",
        device: str | torch.device = "cpu",
        batch_size: int = 256,
    ) -> None:
        from safetensors import SafetensorError
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if output not in ("log_odds", "logit", "probability"):
            raise ValueError(f"output is {output!r}; choose log_odds, logit or probability")
        _check_folder(folder_or_name)
        self.output, self.device, self.batch_size = output, torch.device(device), batch_size
        place = hub.located(folder_or_name)
        head = settings_of(place)
        model: Any
        try:
            with hub.quiet():
                tokens = pocket.lm_path(head["model"]) if head else place
                self.tokenizer = AutoTokenizer.from_pretrained(tokens, trust_remote_code=False)
                model = (
                    LinearHead.load(Path(place))
                    if head
                    else AutoModelForSequenceClassification.from_pretrained(
                        place, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
                    )
                )
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
            raise ValueError(
                f"no sequence classifier could be read from {folder_or_name}: {error}"
            ) from error
        self.model = model.to(self.device).eval()
        self.index = _label_index(label, self.model.config.id2label, folder_or_name)
        several = self.model.config.problem_type == "multi_label_classification"
        self.apart = several or len(self.model.config.id2label) == 1
        self.window = _window(self.tokenizer, self.model)
        self.tokenizer.padding_side, self.tokenizer.truncation_side = "right", "left"
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Return one score per text, in order. Texts are batched by length, to save padding."""
        if not len(texts):
            return []
        cut = self.window is not None
        encoded = self.tokenizer(list(texts), truncation=cut, max_length=self.window)
        ids = [row or [self.tokenizer.pad_token_id] for row in encoded["input_ids"]]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        scores = [0.0] * len(ids)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, score in zip(rows, self._score([ids[i] for i in rows]).tolist(), strict=True):
                scores[row] = score
        return scores

    @torch.inference_mode()
    def _score(self, ids: list[list[int]]) -> Tensor:
        rows = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
        logits_BK: Tensor = self.model(**rows).logits.float()
        logit_B = logits_BK[:, self.index]
        if self.output == "logit":
            return logit_B
        others_BK = torch.cat([logits_BK[:, : self.index], logits_BK[:, self.index + 1 :]], dim=1)
        log_odds_B = logit_B if self.apart else logit_B - others_BK.logsumexp(dim=1)
        return log_odds_B.sigmoid() if self.output == "probability" else log_odds_B


def _check_folder(folder_or_name: str | Path) -> None:
    """Raise ValueError for a local path without a model, which would be looked up on the Hub."""
    path = Path(folder_or_name)
    is_path = isinstance(folder_or_name, Path) or hub.can_only_be_a_path(folder_or_name)
    if is_path and not (path / "config.json").is_file():
        raise ValueError(
            f"the judge folder {path} has no config.json; name a folder saved by save_pretrained"
            + did_you_mean_path(path)
        )


def _label_index(label: str | int, names: dict[int, str], where: str | Path) -> int:
    """Return the index of a label given by name or index, or of the only one; ValueError if there is none."""
    if len(names) == 1:
        return 0
    index = next((i for i, name in names.items() if name.lower() == str(label).lower()), -1)
    if index == -1 and str(label).isdigit():
        index = int(label)
    if index not in names:
        known = ", ".join(f"{i}: {name}" for i, name in sorted(names.items()))
        raise ValueError(f"the classifier {where} has no label {label!r}; choose one of {known}")
    return index


def _window(tokenizer: Any, model: Any) -> int | None:
    """Return the longest input in tokens: the tokenizer's limit or the model's positions, if these are fewer.

    None if there is no limit; a configuration without positions may say -1.

    RoBERTa models number positions from padding_idx + 1.
    """
    positions = max(0, getattr(model.config, "max_position_embeddings", None) or 0) or math.inf
    learned = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    padding = next((getattr(module, "padding_idx", None) for module in learned), None)
    longest = min(tokenizer.model_max_length, positions if padding is None else positions - padding - 1)
    return int(longest) if longest < UNLIMITED else None
