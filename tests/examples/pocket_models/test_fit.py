"""Fitting of the judges, sampling of openings, likelihood of the language model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.pocket_models import fit_judge, fit_second_judge
from examples.pocket_models.measure import bits_per_character
from examples.pocket_models.openings import Config as Openings
from examples.pocket_models.openings import readable, sample


@pytest.fixture
def config(tiny_folder):
    return fit_judge.Config(data=Path("unused"), lm=tiny_folder, blocks=1, tokens=256, words=(4, 20))


def test_judge_starts_as_the_first_blocks_of_the_lm(config, tiny_folder):
    lm = AutoModelForCausalLM.from_pretrained(tiny_folder).transformer
    judge = fit_judge.make_model(config).transformer
    assert (len(lm.h), len(judge.h)) == (2, 1)
    torch.testing.assert_close(judge.h[0].mlp.c_fc.weight, lm.h[0].mlp.c_fc.weight)
    torch.testing.assert_close(judge.wte.weight, lm.wte.weight)


def test_batches_have_few_shapes_and_keep_each_label_with_its_text(config, tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    texts, labels = ["good film " * 10, "bad bad bad " * 10] * 40, [1, 0] * 40
    found = fit_judge.batches(texts, labels, tokenizer, config, epoch=0)
    good = tokenizer(" good")["input_ids"][-1]
    for ids_BT, label_B in found:
        assert ids_BT.shape in {(10, 24), (5, 48), (2, 96), (1, 256)}
        assert [good in ids for ids in ids_BT.tolist()] == [label == 1 for label in label_B.tolist()]
    again = fit_judge.batches(texts, labels, tokenizer, config, epoch=1)
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(found, again, strict=False))


def test_too_few_reviews_for_a_batch_are_refused(config, tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    with pytest.raises(ValueError, match="1 reviews do not fill a batch of 256 tokens; lower --tokens"):
        fit_judge.batches(["a good film about a bad film"], [1], tokenizer, config, epoch=1)


def test_loss_is_that_of_every_token_from_the_first_predicting_one_on_without_padding(config):
    model = fit_judge.make_model(config).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9, -1, -1], [9, 8, 7, 6, 5, 4, 3]])
    # the classifier pools the last token: log-odds of a prefix are those of the prefix as a text
    prefixes = [ids[0, :4], ids[0, :5], ids[1, :4], ids[1, :5], ids[1, :6], ids[1, :7]]
    labels = [1, 1, 0, 0, 0, 0]
    logprobs = [
        model(input_ids=p[None]).logits.log_softmax(-1)[0, k] for p, k in zip(prefixes, labels, strict=True)
    ]
    got = fit_judge.label_loss(model, ids, torch.tensor([1, 0]), first_token=3)
    assert got.item() == pytest.approx(-torch.stack(logprobs).mean().item(), abs=2e-2)  # bf16


def test_log_count_ratio_by_hand():
    config = fit_second_judge.Config(data=Path("unused"), buckets=2**20)
    rows = fit_second_judge.design(["good", "good", "bad"], config)
    ratio = fit_second_judge.log_count_ratio(rows, np.array([1, 1, 0]))
    (good,), (bad,) = (np.flatnonzero(rows[i].toarray()[0]) for i in (0, 2))
    # counts + 1: good 3 : 1, bad 1 : 2; totals 2^20 + 2 and 2^20 + 1, equal to six digits
    assert ratio[[good, bad]] == pytest.approx([np.log(3), -np.log(2)], abs=1e-5)


def test_second_judge_separates_words_and_weighs_both_labels_equally():
    config = fit_second_judge.Config(data=Path("unused"), buckets=2**12, penalty=1e-3)
    texts = ["good"] * 9 + ["bad"]
    rows = fit_second_judge.design(texts, config)
    weights, bias = fit_second_judge.logistic(rows, np.array([1] * 9 + [0]), config)
    (good,), (bad,) = (fit_second_judge.ngram_buckets(word, 2**12) for word in ("good", "bad"))
    # nine to one in number, one to one in weight: the solution is symmetric
    assert weights[good] > 1
    assert weights[bad] == pytest.approx(-weights[good], rel=1e-2)
    assert bias == pytest.approx(0, abs=1e-2)


def test_openings_are_different_disjoint_readable_and_reproducible(tiny_folder):
    config = Openings(lm=tiny_folder, train=40, test=10, batch=64, tokens=(2, 5), seed=3)
    splits = sample(config)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    texts = [text for of_split in splits.values() for text in of_split]
    assert len(splits["train"]) + len(splits["validation"]) == 40
    assert (len(splits["test"]), len(set(texts))) == (10, 50)
    for ids in map(tuple, tokenizer(texts)["input_ids"]):
        assert 2 <= len(ids) <= 5
        assert tokenizer.eos_token_id not in ids
        assert readable(tokenizer, ids)
    assert sample(config) == splits


def test_half_a_character_is_not_readable(tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    whole = tuple(tokenizer("é")["input_ids"])
    assert len(whole) == 2
    assert readable(tokenizer, whole)
    assert not readable(tokenizer, whole[:1])


def test_bits_per_character_of_a_model_that_knows_nothing(tiny_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    for parameter in model.parameters():
        parameter.data.zero_()
    model.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.save_pretrained(tmp_path)
    # every token costs log2(vocabulary) bits; "é" is two tokens, one character; the third is cut at 9 tokens
    texts = ["a good film", "é", "good " * 40]
    tokens = len(tokenizer(texts[0])["input_ids"]) + 2 + 9
    characters = 11 + 1 + len(tokenizer.decode(tokenizer(texts[2])["input_ids"][:9]))
    got = bits_per_character(tmp_path, texts, tokens=9, batch=2)
    assert got["bits_per_character"] == pytest.approx(tokens * np.log2(len(tokenizer)) / characters)
