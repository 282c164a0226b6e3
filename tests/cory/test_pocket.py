"""The embedded models load with plain transformers and are what their cards say."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from cory.judges.classifier import Classifier
from cory.judges.ngrams import NGrams
from cory.pocket import HERE, JUDGE, LM, OPENINGS, SECOND_JUDGE

LIMITS_MB = {LM: 16, JUDGE: 6, SECOND_JUDGE: 3}


@pytest.mark.parametrize("folder", LIMITS_MB, ids=lambda f: f.name)
def test_folder_is_small_and_has_a_card_and_no_pickle(folder):
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LIMITS_MB[folder] * 1e6
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md", ".txt"}
    card = (folder / "README.md").read_text()
    assert "Maas" in card
    assert "must not be used" in card


def test_the_lm_loads_with_transformers_and_generates():
    generated = pipeline("text-generation", model=str(LM), device="cpu")(
        "This film", max_new_tokens=5, do_sample=False
    )
    assert generated[0]["generated_text"].startswith("This film ")


def test_lm_and_judge_share_a_tokenizer_in_which_id_0_begins_ends_and_pads():
    for folder in (LM, JUDGE):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 0)
        assert len(tokenizer) == 4096
        assert tokenizer.decode(tokenizer("naïve: 7/10 ☺")["input_ids"]) == "naïve: 7/10 ☺"
    assert (LM / "tokenizer.json").read_bytes() == (JUDGE / "tokenizer.json").read_bytes()


def test_models_have_their_stated_shapes():
    lm, judge = (
        AutoModelForCausalLM.from_pretrained(LM),
        AutoModelForSequenceClassification.from_pretrained(JUDGE),
    )
    assert (lm.config.n_layer, lm.config.n_embd, lm.config.vocab_size, lm.config.n_positions) == (
        4,
        256,
        4096,
        256,
    )
    assert judge.config.id2label == {0: "negative", 1: "positive"}


@pytest.mark.parametrize("judge", [Classifier(JUDGE), NGrams(SECOND_JUDGE)], ids=["judge", "second_judge"])
def test_judges_score_good_above_bad(judge):
    good, bad = judge(["a wonderful, moving film", "a dull, awful waste of time"])
    assert good > 0 > bad


def test_openings_are_many_distinct_and_disjoint():
    openings = json.loads(OPENINGS.read_text(encoding="utf-8"))
    assert {split: len(set(texts)) for split, texts in openings.items()} == {
        split: len(texts) for split, texts in openings.items()
    }
    assert len(openings["train"]) >= 4096
    assert len(openings["test"]) >= 1024
    texts = [text for of_split in openings.values() for text in of_split]
    assert len(set(texts)) == len(texts)
    tokenizer = AutoTokenizer.from_pretrained(LM)
    for text, ids in zip(texts, tokenizer(texts)["input_ids"], strict=True):
        assert 2 <= len(ids) <= 7
        assert tokenizer.decode(ids) == text


def test_measured_quality_meets_the_stated_minimum():
    figures = json.loads((HERE / "figures.json").read_text())
    assert figures["reviews"] > 5900
    assert figures["lm"]["bits_per_character"] <= 1.75
    assert figures["judges"]["judge, 40 words"]["accuracy"] >= 0.76
