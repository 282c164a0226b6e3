"""The character tokenizer, and the adapters of `tokenizers` and Hugging Face tokenizers."""

import json

import pytest

from cory_env.tokenizer import CharTokenizer, load, wrap


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
def folder(tmp_path):
    """A model folder whose vocabulary is the words a and b, the EOS tokens <e> and <t>, and the pad <p>."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"a": 0, "b": 1, "<e>": 2, "<t>": 3, "<p>": 4}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single="<e> $A", special_tokens=[("<e>", 2)]
    )
    fast.add_special_tokens(["<e>", "<t>", "<p>"])
    fast.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<e>", "pad_token": {"content": "<p>"}})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    return tmp_path


def test_a_folder_names_every_eos_and_the_pad(folder):
    tokenizer = load(folder)
    assert (tokenizer.eos, tokenizer.pad, tokenizer.vocab_size) == (frozenset({2, 3}), 4, 5)


def test_nothing_is_added_and_only_eos_and_pad_are_hidden(folder):
    tokenizer = load(folder)
    assert tokenizer.encode("a b <t>") == [0, 1, 3]  # the template of tokenizer.json would begin with <e>
    assert tokenizer.decode([2, 0, 1, 3, 4]) == "a b"


def test_a_loaded_tokenizer_without_eos_needs_one(folder):
    for name in ("tokenizer_config.json", "generation_config.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match="names no EOS token; pass the ids that end a response"):
        load(folder)
    tokenizer = load(folder / "tokenizer.json", eos={3})
    assert (tokenizer.eos, tokenizer.pad) == (frozenset({3}), 3)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no tokenizer at .*nowhere"):
        load(tmp_path / "nowhere")


def test_a_hugging_face_tokenizer_is_wrapped_with_its_own_eos_or_several(folder):
    transformers = pytest.importorskip("transformers")
    loaded = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<e>"
    )
    one = wrap(loaded)
    assert (one.eos, one.pad, one.vocab_size) == (frozenset({2}), 2, 5)
    two = wrap(loaded, eos=[2, 3], vocab_size=8)
    assert (two.eos, two.vocab_size) == (frozenset({2, 3}), 8)
    assert two.encode("a b") == [0, 1]
    assert two.decode([0, 1, 2, 3]) == "a b"
    with pytest.raises(ValueError, match="EOS or pad id 9 is outside the vocabulary of 5 ids"):
        wrap(loaded, eos=[9])
