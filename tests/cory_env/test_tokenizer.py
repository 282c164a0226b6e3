"""The character tokenizer, and the adapter of Hugging Face tokenizers."""

import pytest

from cory_env.tokenizer import CharTokenizer, HFTokenizer


def test_characters_come_first_then_eos_then_pad():
    tokenizer = CharTokenizer("ab", stops=2)
    assert (tokenizer.eos, tokenizer.pad, tokenizer.vocab_size) == (frozenset({2, 3}), 4, 5)
    assert tokenizer.encode("abba") == [0, 1, 1, 0]
    assert tokenizer.decode([0, 1, 3, 4]) == "ab"


def test_an_unknown_character_is_named():
    with pytest.raises(ValueError, match="'x' in 'ax' is not in the alphabet 'ab'"):
        CharTokenizer("ab").encode("ax")


@pytest.mark.parametrize(
    ("alphabet", "stops", "fault"), [("aa", 1, "each of them once"), ("a", 0, "at least one EOS")]
)
def test_an_alphabet_needs_distinct_letters_and_an_end(alphabet, stops, fault):
    with pytest.raises(ValueError, match=fault):
        CharTokenizer(alphabet, stops=stops)


@pytest.fixture
def words():
    """A Hugging Face tokenizer: the words a and b, the EOS tokens <e> and <t>, and the pad <p>."""
    transformers, tokenizers = (pytest.importorskip(name) for name in ("transformers", "tokenizers"))
    ids = {"a": 0, "b": 1, "<e>": 2, "<t>": 3, "<p>": 4}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="a"))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single="<e> $A", special_tokens=[("<e>", 2)]
    )
    fast.add_special_tokens(["<e>", "<t>", "<p>"])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<e>")


def test_nothing_is_added_and_only_eos_and_pad_are_hidden(words):
    tokenizer = HFTokenizer(words, pad=4)
    assert tokenizer.encode("a b <t>") == [0, 1, 3]  # the tokenizer's own template would begin with <e>
    assert tokenizer.decode([2, 0, 1, 3, 4]) == "a b"
    assert tokenizer.pad == 4


def test_a_tokenizer_without_eos_needs_one(words):
    words.eos_token = None
    with pytest.raises(ValueError, match="names no EOS token; pass the ids that end a response"):
        HFTokenizer(words)
    tokenizer = HFTokenizer(words, eos={3})
    assert (tokenizer.eos, tokenizer.pad) == (frozenset({3}), 3)


def test_a_hugging_face_tokenizer_is_wrapped_with_its_own_eos_or_several(words):
    one = HFTokenizer(words)
    assert (one.eos, one.pad, one.vocab_size) == (frozenset({2}), 2, 5)
    two = HFTokenizer(words, eos=[2, 3], vocab_size=8)
    assert (two.eos, two.vocab_size) == (frozenset({2, 3}), 8)
    assert two.encode("a b") == [0, 1]
    assert two.decode([0, 1, 2, 3]) == "a b"
    with pytest.raises(ValueError, match="EOS or pad id 9 is outside the vocabulary of 5 ids"):
        HFTokenizer(words, eos=[9])
