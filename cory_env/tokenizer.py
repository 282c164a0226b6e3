"""Tokenizers: the protocol that the game needs, a character tokenizer, and an adapter of Hugging Face ones.

The game carries token ids only; queries and templates are encoded before it, responses decoded after it.
"""

import copy
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """Text to token ids from 0 to `vocab_size - 1` and back; a model's logits may be wider."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""
        ...

    @property
    def eos(self) -> frozenset[int]:
        """The ids that end a response; any one of them does."""
        ...

    @property
    def pad(self) -> int:
        """The id that fills the tail of arrays; a real id, which may be one of `eos`."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, with no special token added around them."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens; an ordinary token that serves as pad stays."""
        ...


class CharTokenizer:
    """A tokenizer with one id per character of `alphabet`, then `stops` EOS ids, then pad.

    It needs no package and no file.
    """

    def __init__(self, alphabet: str = string.ascii_lowercase + " ", *, stops: int = 1) -> None:
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"alphabet is {alphabet!r}; give at least one character, each of them once")
        if stops < 1:
            raise ValueError(f"stops is {stops}; a response needs at least one EOS id to end with")
        self.alphabet = alphabet
        self.eos = frozenset(range(len(alphabet), len(alphabet) + stops))
        self.pad = len(alphabet) + stops
        self.vocab_size = self.pad + 1
        self._texts = (*alphabet, *[""] * (stops + 1))
        self._ids = {character: index for index, character in enumerate(alphabet)}

    def encode(self, text: str) -> list[int]:
        """Return one id per character; a character outside the alphabet is a ValueError."""
        unknown = sorted(set(text) - set(self._ids))
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} in {text!r} is not in the alphabet {self.alphabet!r}; add it there"
            )
        return [self._ids[character] for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Return one character per id, and none for EOS and pad."""
        return "".join(map(self._texts.__getitem__, ids))


Message = Mapping[str, str]
"""One message of a chat: its `role` and its `content`."""


class HFTokenizer:
    """Adapter of a loaded Hugging Face tokenizer, `inner`, to the game.

    `eos` and `pad` default to the tokenizer's own; instruct models end on several ids, listed in their
    generation config, and an EOS id stands in for a pad beyond the vocabulary.
    """

    def __init__(
        self,
        inner: Any,
        *,
        eos: Iterable[int] | None = None,
        pad: int | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self.inner = inner
        self.vocab_size = vocab_size = vocab_size or max(inner.get_vocab().values()) + 1
        self.eos = frozenset(({inner.eos_token_id} - {None}) if eos is None else map(int, eos))
        pad = inner.pad_token_id if pad is None else pad
        if not self.eos:
            raise ValueError(
                "this tokenizer names no EOS token; pass the ids that end a response as eos={...}"
            )
        # A pad token that was added to a tokenizer need not be one of the model's.
        self.pad = min(self.eos) if pad is None or pad >= vocab_size else int(pad)
        outside = sorted(i for i in self.eos | {self.pad} if not 0 <= i < vocab_size)
        if outside:
            raise ValueError(f"EOS or pad id {outside[0]} is outside the vocabulary of {vocab_size} ids")
        self._special = self._special_ids()
        self.start = self._start()
        anchor = self.encode("\n")
        self._opens_with_space = self.encode("\na")[len(anchor) :] != self.encode("a")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; special tokens written out in it (as in rendered chats) become ids."""
        return list(self.inner.encode(text, add_special_tokens=False))

    def _start(self) -> tuple[int, ...]:
        """What the tokenizer puts before a text; what it puts behind one, such as EOS, is left out."""
        alone, whole = self.encode("a"), list(self.inner.encode("a"))
        for i in range(len(whole) - len(alone) + 1):
            if whole[i : i + len(alone)] == alone:
                return tuple(whole[:i])
        raise ValueError(
            f"this tokenizer writes 'a' as {alone}, and {whole} with its special tokens; use one that puts "
            "them before or behind a text"
        )

    def _special_ids(self) -> frozenset[int]:
        """The ids of special tokens.

        Transformers flags any token that serves as pad or EOS when it loads a tokenizer. One that is a single
        character, or that the merges of a BPE make from its text, is an ordinary token all the same.
        """
        if self.inner.is_fast:
            model: Any = self.inner.backend_tokenizer.model
            merges = type(model).__name__ == "BPE" and not model.ignore_merges
            added = self.inner.added_tokens_decoder
            flagged = {i: token.content for i, token in added.items() if token.special}
        else:  # written in Python
            merges = False
            flagged = dict(zip(self.inner.all_special_ids, self.inner.all_special_tokens, strict=True))
        return frozenset(
            i
            for i, text in flagged.items()
            if len(text) > 1 and not (merges and [token.id for token in model.tokenize(text)] == [i])
        )

    def encode_inside(self, text: str) -> list[int]:
        """The ids of `text` where it continues other text.

        Tokenizers such as Llama's put a space before a text of its own; here none is added.
        """
        if not self._opens_with_space:
            return self.encode(text)
        for anchor in ("\n", ".", "a"):
            prefix, both = self.encode(anchor), self.encode(anchor + text)
            if both[: len(prefix)] == prefix:
                return both[len(prefix) :]
        raise ValueError(f"this tokenizer merges {text!r} with any text before it; begin it otherwise")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens, with spaces unchanged."""
        visible = [int(i) for i in ids if i not in self._special]
        return str(self.inner.decode(visible, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def chat(self, messages: Sequence[Message]) -> str:
        """Render a chat by the tokenizer's chat template, up to where the assistant's response begins."""
        if self.inner.chat_template is None:
            raise ValueError("this tokenizer has no chat template; write the prompt as text")
        chat = [dict(message) for message in messages]
        try:
            return str(self.inner.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is a program and may raise anything
            raise ValueError(f"the chat template refuses {chat}: {error}") from error


def encode_inside(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of `text` where it does not begin a prompt."""
    return tokenizer.encode_inside(text) if isinstance(tokenizer, HFTokenizer) else tokenizer.encode(text)


def start_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that a tokenizer puts before a text of its own, such as BOS."""
    return tokenizer.start if isinstance(tokenizer, HFTokenizer) else ()


def without_start(ids: Sequence[int], start: Sequence[int]) -> Sequence[int]:
    """Return `ids` without the ids `start` at their beginning."""
    return ids[len(start) :] if start and tuple(ids[: len(start)]) == tuple(start) else ids


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of `text` as a whole prompt: BOS once if the tokenizer puts it before texts, no EOS."""
    start = start_of(tokenizer)
    return [*start, *without_start(tokenizer.encode(text), start)]


def for_chats(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer for prompts that its chat template begins, BOS included: it adds nothing."""
    if not isinstance(tokenizer, HFTokenizer):
        return tokenizer
    bare = copy.copy(tokenizer)
    bare.start = ()
    return bare
