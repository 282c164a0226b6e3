"""The tokenizer of the arithmetic model: a byte-level BPE that never joins two digits."""

from collections.abc import Iterable
from pathlib import Path

from examples.pocket_models.corpus import END

PIECES = r"\n?[A-Za-z]+:|\n#+| ?[0-9]| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s"
"""Possible tokens: `Question:`, a digit, a word, signs; the last three with the space before."""


def train_tokenizer(texts: Iterable[str], out: Path, *, vocab_size: int, window: int) -> None:
    """Fit the BPE, without unknown tokens, and save it as a fast tokenizer folder. END has id 0."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    bpe.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END, model_max_length=window
    ).save_pretrained(out)
