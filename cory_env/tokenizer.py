"""Tokenizers: the protocol that the game needs, a character tokenizer, and adapters for Hugging Face ones.

The game carries token ids only; queries and templates are encoded before it, responses decoded after it.
"""

import copy
import json
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cory_env import chat_limits
from cory_env.nearest import did_you_mean_path


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


class Adapter:
    """Base class of `Wrapped` and `Loaded`; `inner` is the original tokenizer."""

    def __init__(self, inner: Any, *, eos: Iterable[int], pad: int | None, vocab_size: int) -> None:
        self.inner = inner
        self.vocab_size = vocab_size
        self.eos = frozenset(int(i) for i in eos)
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
        """Return the ids of `text`; special tokens written out in it (as in rendered chats) become ids."""
        raise NotImplementedError

    def _encode_whole(self, text: str) -> list[int]:
        """Return the ids of `text` with what the tokenizer puts before and behind it."""
        raise NotImplementedError

    def _backend(self) -> Any:
        """Return the `tokenizers.Tokenizer`; None for a tokenizer written in Python."""
        raise NotImplementedError

    def _flagged(self) -> dict[int, str]:
        """Return the tokens that are called special, by id."""
        raise NotImplementedError

    def _start(self) -> tuple[int, ...]:
        """Return what the tokenizer puts before a text; what it puts behind one, such as EOS, is left out."""
        alone, whole = self.encode("a"), self._encode_whole("a")
        for i in range(len(whole) - len(alone) + 1):
            if whole[i : i + len(alone)] == alone:
                return tuple(whole[:i])
        raise ValueError(
            f"this tokenizer writes 'a' as {alone}, and {whole} with its special tokens; use one that puts "
            "them before or behind a text"
        )

    def _special_ids(self) -> frozenset[int]:
        """Return the ids of special tokens.

        Transformers flags any token that serves as pad or EOS when it loads a tokenizer. One that is a single
        character, or that the merges of a BPE make from its text, is an ordinary token all the same.
        """
        backend = self._backend()
        model: Any = None if backend is None else backend.model
        merges = type(model).__name__ == "BPE" and not model.ignore_merges
        return frozenset(
            i
            for i, text in self._flagged().items()
            if len(text) > 1 and not (merges and [token.id for token in model.tokenize(text)] == [i])
        )

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of `text` where it continues other text.

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
        """Return the text of `ids` without special tokens, with spaces unchanged."""
        raise NotImplementedError

    def _visible(self, ids: Sequence[int]) -> list[int]:
        """Return `ids` without special tokens."""
        return [int(i) for i in ids if i not in self._special]


class Wrapped(Adapter):
    """Adapter of a loaded Hugging Face tokenizer, made by `wrap`."""

    def encode(self, text: str) -> list[int]:
        """See `Adapter.encode`."""
        return list(self.inner.encode(text, add_special_tokens=False))

    def _encode_whole(self, text: str) -> list[int]:
        return list(self.inner.encode(text))

    def _backend(self) -> Any:
        return self.inner.backend_tokenizer if self.inner.is_fast else None

    def _flagged(self) -> dict[int, str]:
        if not self.inner.is_fast:
            return dict(zip(self.inner.all_special_ids, self.inner.all_special_tokens, strict=True))
        return _special_of(self.inner.added_tokens_decoder)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Adapter.decode`."""
        visible = self._visible(ids)
        return str(self.inner.decode(visible, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def chat(self, messages: Sequence[Message]) -> str:
        """Render a chat by the tokenizer's chat template, up to where the assistant's response begins."""
        if self.inner.chat_template is None:
            raise ValueError("this tokenizer has no chat template; write the prompt as text")
        chat = [dict(message) for message in messages]
        chat_limits.check(self.inner.get_chat_template(), chat, self.inner.special_tokens_map)
        try:
            return str(self.inner.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is a program and may raise anything
            raise ValueError(f"the chat template refuses {chat}: {error}") from error


class Loaded(Adapter):
    """Adapter of a `tokenizers.Tokenizer`, made by `load`."""

    def encode(self, text: str) -> list[int]:
        """See `Adapter.encode`."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def _encode_whole(self, text: str) -> list[int]:
        return list(self.inner.encode(text).ids)

    def _backend(self) -> Any:
        return self.inner

    def _flagged(self) -> dict[int, str]:
        return _special_of(self.inner.get_added_tokens_decoder())

    def decode(self, ids: Sequence[int]) -> str:
        """See `Adapter.decode`."""
        return str(self.inner.decode(self._visible(ids), skip_special_tokens=False))


def _special_of(added: Mapping[int, Any]) -> dict[int, str]:
    """Return the texts of the special ones among added tokens, by id."""
    return {i: token.content for i, token in added.items() if token.special}


def encode_inside(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of `text` where it does not begin a prompt."""
    return tokenizer.encode_inside(text) if isinstance(tokenizer, Adapter) else tokenizer.encode(text)


def start_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that a tokenizer puts before a text of its own, such as BOS."""
    return tokenizer.start if isinstance(tokenizer, Adapter) else ()


def without_start(ids: Sequence[int], start: Sequence[int]) -> Sequence[int]:
    """Return `ids` without the ids `start` at their beginning."""
    return ids[len(start) :] if start and tuple(ids[: len(start)]) == tuple(start) else ids


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of `text` as a whole prompt: BOS once if the tokenizer puts it before texts, no EOS."""
    start = start_of(tokenizer)
    return [*start, *without_start(tokenizer.encode(text), start)]


def for_chats(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer for prompts that its chat template begins, BOS included: it adds nothing."""
    if not isinstance(tokenizer, Adapter):
        return tokenizer
    bare = copy.copy(tokenizer)
    bare.start = ()
    return bare


def wrap(
    tokenizer: Any,
    *,
    eos: Iterable[int] | None = None,
    pad: int | None = None,
    vocab_size: int | None = None,
) -> Tokenizer:
    """Adapt a loaded Hugging Face tokenizer to the game.

    `eos` and `pad` default to the tokenizer's own; instruct models end on several ids, listed in their
    generation config, and an EOS id stands in for a pad beyond the vocabulary.
    """
    own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    return Wrapped(
        tokenizer,
        eos=own if eos is None else eos,
        pad=tokenizer.pad_token_id if pad is None else pad,
        vocab_size=len(tokenizer) if vocab_size is None else vocab_size,
    )


def load(folder: str | Path, *, eos: Iterable[int] | None = None) -> Tokenizer:
    """Load the tokenizer of a model folder (or of one `tokenizer.json`); needs only the package `tokenizers`.

    `eos` defaults to every EOS id in the folder's configuration files; instruct models have several.
    """
    try:
        from tokenizers import Tokenizer as Fast
    except ImportError as error:
        raise ImportError(
            "reading tokenizer.json needs the package tokenizers: pip install tokenizers"
        ) from error
    path = Path(folder)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"there is no tokenizer at {file}; give a folder that holds a tokenizer.json"
            + did_you_mean_path(file)
        )
    inner = Fast.from_file(str(file))
    vocabulary: dict[str, int] = inner.get_vocab(with_added_tokens=True)
    special = _special_ids(file.parent, vocabulary)
    return Loaded(
        inner,
        eos=special["eos"] if eos is None else eos,
        pad=next(iter(special["pad"]), None),
        vocab_size=max(vocabulary.values()) + 1,
    )


def _special_ids(folder: Path, vocabulary: dict[str, int]) -> dict[str, list[int]]:
    """Read the EOS and pad ids in the JSON files of a model folder, in the order of the files."""
    found: dict[str, list[int]] = {"eos": [], "pad": []}
    for name in ("generation_config.json", "config.json", "tokenizer_config.json", "special_tokens_map.json"):
        file = folder / name
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        for kind, ids in found.items():
            by_id = config.get(f"{kind}_token_id")
            ids += by_id if isinstance(by_id, list) else [] if by_id is None else [by_id]
            token = config.get(f"{kind}_token")
            content = token["content"] if isinstance(token, dict) else token
            ids += [vocabulary[content]] if content in vocabulary else []
    return found
