"""Judges: functions from texts to scores. Any Hugging Face sequence classifier, n-grams, or your own by name.

Shapes: B texts, T tokens, K labels.
"""

import importlib
import json
import math
import re
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Output = Literal["log_odds", "logit", "probability"]
Judge = Callable[[Sequence[str]], Sequence[float]]

GROUP = "cory.judges"
"""Entry points of this group name functions, as `my_judge = "my_package.my_module:my_function"`."""


def names() -> list[str]:
    """The judges that have a name: the bundled one, and those other distributions bring."""
    return sorted({"pocket"} | entry_points(group=GROUP).names)


def function(spec: str) -> Judge | None:
    """The function that `spec` stands for, an entry point or `module:function`; None for a classifier, which
    is `pocket`, a folder or `owner/name` on the Hub."""
    foreign = entry_points(group=GROUP)
    if spec not in foreign.names and ":" not in spec:
        if spec not in names() and "/" not in spec and not Path(spec).is_dir():
            raise ValueError(
                f"no judge called {spec!r}; there are {', '.join(names())}; a classifier is a folder or "
                "owner/name on the Hub, a function of your own module:function"
            )
        return None
    try:
        if spec in foreign.names:
            judge: Judge = foreign[spec].load()
        else:
            module, _, name = spec.partition(":")
            judge = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"judge {spec!r} cannot be imported ({error}); write module:function") from error
    if not callable(judge):
        raise ValueError(
            f"judge {spec!r} is no function but a {type(judge).__name__}; name a function of texts"
        )
    return judge


class Classifier:
    """Scores texts by one label of a sequence classifier, in float32.

    `log_odds` is log P(label) - log(1 - P(label)), `logit` the raw output of the label. A text longer than
    the classifier's window is cut as its tokenizer cuts. Code that comes with a model is never run.
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
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if output not in ("log_odds", "logit", "probability"):
            raise ValueError(f"output is {output!r}; choose log_odds, logit or probability")
        _refuse_missing(folder_or_name)
        self.output, self.device, self.batch_size = output, torch.device(device), batch_size
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder_or_name)
            model: Any = AutoModelForSequenceClassification.from_pretrained(
                folder_or_name, dtype=torch.float32
            )
        except OSError as error:
            raise ValueError(
                f"no sequence classifier could be read from {folder_or_name}: {error}"
            ) from error
        self.model = model.to(self.device).eval()
        self.index = _label_index(label, self.model.config.id2label, folder_or_name)
        self.window = _window(self.tokenizer, self.model.config)
        self.tokenizer.padding_side = "right"
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """One score per text, in order. Batches hold texts of similar length: little padding is computed."""
        ids = self._tokenize(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        scores = [0.0] * len(ids)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, score in zip(rows, self._score([ids[i] for i in rows]).tolist(), strict=True):
                scores[row] = score
        return scores

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        if not len(texts):
            return []
        found: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.window)[
            "input_ids"
        ]
        return [ids or [self.tokenizer.pad_token_id] for ids in found]

    @torch.inference_mode()
    def _score(self, ids: list[list[int]]) -> Tensor:
        rows = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
        logits_BK: Tensor = self.model(**rows).logits.float()
        logit_B = logits_BK[:, self.index]
        if self.output == "logit":
            return logit_B
        if self.output == "probability":
            return logits_BK.softmax(dim=1)[:, self.index]
        others_BK = torch.cat([logits_BK[:, : self.index], logits_BK[:, self.index + 1 :]], dim=1)
        return logit_B - others_BK.logsumexp(dim=1)


class NGrams:
    """Log-odds of "positive" by the words and word pairs a text contains: the second judge.

    log_odds = bias + n^(-exponent) * sum of weight[bucket] over the n different buckets of the text, where a
    bucket is the crc32 of a word or a pair of words, modulo the number of weights. No order beyond pairs.
    """

    def __init__(self, folder: str | Path) -> None:
        from safetensors.numpy import load_file

        path = Path(folder)
        for name in ("config.json", "model.safetensors"):
            if not (path / name).is_file():
                raise ValueError(
                    f"the n-gram judge {path} has no {name}; make it with agents.pocket.fit_second_judge"
                )
        config = json.loads((path / "config.json").read_text())
        self.exponent, self.bias = float(config["exponent"]), float(config["bias"])
        self.weights = load_file(path / "model.safetensors")["weights"].astype("float64")

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """One log-odds per text, in order; a text without a word scores the bias."""
        return [self._score(ngram_buckets(text, len(self.weights))) for text in texts]

    def _score(self, buckets: list[int]) -> float:
        shrink: float = max(1, len(buckets)) ** -self.exponent
        return self.bias + float(self.weights[buckets].sum()) * shrink


WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?]")


def ngram_buckets(text: str, size: int) -> list[int]:
    """The different buckets, in [0, size), of the words and word pairs of `text` in lower case; ascending."""
    words = WORD.findall(text.lower())
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return sorted({zlib.crc32(ngram.encode()) % size for ngram in (*words, *pairs)})


def _refuse_missing(folder_or_name: str | Path) -> None:
    """A path that is not a folder would be looked up on the Hub; say what is wrong instead."""
    path = Path(folder_or_name)
    looks_local = (
        isinstance(folder_or_name, Path) or len(path.parts) > 2 or path.is_absolute() or str(path)[:1] == "."
    )
    if looks_local and not (path / "config.json").is_file():
        raise ValueError(
            f"the judge folder {path} has no config.json; name a folder saved by save_pretrained"
        )


def _label_index(label: str | int, names: dict[int, str], where: str | Path) -> int:
    if len(names) < 2:
        raise ValueError(f"the classifier {where} has one label; a judge needs at least two")
    index = (
        label
        if isinstance(label, int)
        else next((i for i, n in names.items() if n.lower() == label.lower()), -1)
    )
    if index not in names:
        known = ", ".join(f"{i}: {name}" for i, name in sorted(names.items()))
        raise ValueError(f"the classifier {where} has no label {label!r}; choose one of {known}")
    return index


def _window(tokenizer: Any, config: Any) -> int:
    """The longest input in tokens: what the tokenizer says, or the number of positions if that is less."""
    return int(min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or math.inf))
