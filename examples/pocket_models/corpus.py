"""Movie reviews for fitting the pocket models: clean texts, parts by movie, snippets, a tokenizer."""

import hashlib
import random
from collections.abc import Iterable
from pathlib import Path

END = "<|endoftext|>"
"""Id 0: BOS, EOS and pad."""


def clean(text: str) -> str:
    """A review with its line breaks replaced by spaces, otherwise unchanged."""
    return text.replace("<br />", " ")


def reviews(path: str | Path) -> tuple[list[str], list[int]]:
    """Texts and labels (1 positive, 0 negative, -1 none) of a parquet file, each text once, in file order."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["text", "label"])
    labels: dict[str, int] = {}
    for text, label in zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True):
        labels.setdefault(clean(text), label)
    return list(labels), list(labels.values())


def train_tokenizer(texts: Iterable[str], out: Path, *, vocab_size: int = 4096) -> None:
    """Fit a byte-level BPE without unknown tokens, and save it as a fast tokenizer folder."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        texts, vocab_size=vocab_size, min_frequency=2, special_tokens=[END], show_progress=False
    )
    PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, bos_token=END, eos_token=END, pad_token=END, model_max_length=256
    ).save_pretrained(out)


JUDGE, JUDGE_HELD_OUT, SECOND_JUDGE, SECOND_JUDGE_HELD_OUT = (
    (0.0, 0.65),
    (0.65, 0.7),
    (0.7, 0.95),
    (0.95, 1.0),
)
"""Parts of the labelled reviews, by hash of the movie: each judge is fitted on one and calibrated on
another."""


def part(path: str | Path, share: tuple[float, float]) -> tuple[list[str], list[int]]:
    """Labelled texts as in `reviews`, of the movies whose sha256, read as a number in [0, 1), is in `share`.

    Parts share no movie, and so no text: opinions on one film must not leak into another part.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["text", "movie"])
    movies = dict(zip(map(clean, table["text"].to_pylist()), table["movie"].to_pylist(), strict=True))
    low, high = share
    selected = [
        (text, label) for text, label in zip(*reviews(path), strict=True) if low <= _draw(movies[text]) < high
    ]
    if any(label not in (0, 1) for _, label in selected):
        raise ValueError(f"{path} holds reviews without a label; judges are fitted on train.parquet")
    return [text for text, _ in selected], [label for _, label in selected]


def _draw(key: str) -> float:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48


def first_words(text: str, count: int) -> str:
    """The first `count` words, one space between them."""
    return " ".join(text.split()[:count])


def snippet(text: str, rng: random.Random, *, words: tuple[int, int], opening: float) -> str:
    """Consecutive words, between `words[0]` and `words[1]` of them.

    They are from the start of the text with probability `opening`, else from anywhere.
    """
    all_words = text.split()
    count = rng.randint(*words)
    start = 0 if rng.random() < opening else rng.randint(0, max(0, len(all_words) - count))
    return " ".join(all_words[start : start + count])


def game_openings(texts: list[str], labels: list[int], rng: random.Random) -> tuple[list[str], list[int]]:
    """The first 5 to 18 words of each text, at four random lengths: what a judge reads in a game."""
    short = [snippet(text, rng, words=(5, 18), opening=1.0) for text in texts * 4]
    return short, labels * 4
