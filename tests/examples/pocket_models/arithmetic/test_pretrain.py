"""Pretraining of the arithmetic model: rows, resuming, tokenizer."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.pocket_models import pretrain as loop
from examples.pocket_models.arithmetic.pretrain import Config, batches, packed, train

pytestmark = pytest.mark.slow


def test_rows_begin_with_documents_and_end_marks_follow_them():
    texts = iter([[1, 1], [2, 2, 2], [3] * 9, [4], [5]])
    # 1 1 END 2 2 (cut); the next row begins with the next document
    assert packed(texts, rows=2, length=5, end=0).tolist() == [[1, 1, 0, 2, 2], [3] * 5]


def settings(work) -> Config:
    return Config(
        work=work, out=work / "lm", steps=10, rows=4, row=16, context=32, layers=1, width=16, heads=2,
        vocab_size=300, warmup=1, save_every=3,
    )  # fmt: skip


@pytest.mark.usefixtures("eager")
def test_a_killed_pretraining_resumes_to_the_same_weights(tmp_path, monkeypatch):
    train(settings(tmp_path / "whole"))
    original, calls = loop.next_token_loss, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(loop, "next_token_loss", dies)
    with pytest.raises(KeyboardInterrupt):
        train(settings(tmp_path / "cut"))
    monkeypatch.setattr(loop, "next_token_loss", original)
    train(settings(tmp_path / "cut"))
    whole, cut = (AutoModelForCausalLM.from_pretrained(tmp_path / name / "lm") for name in ("whole", "cut"))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters(), strict=True))


@pytest.mark.usefixtures("eager")
def test_llama_is_pretrained_with_muon_for_the_matrices_of_its_blocks(tmp_path):
    config = replace(settings(tmp_path), architecture="llama", steps=2)
    train(config)
    model = AutoModelForCausalLM.from_pretrained(config.out)
    assert model.config.model_type == "llama"
    assert model.config.intermediate_size == 48  # 8/3 of 16 is 42.7
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    muon, adam = loop.make_optimizers(model, config)
    shapes = sorted(tuple(p.shape) for group in muon.param_groups for p in group["params"])
    assert shapes == sorted([(16, 16)] * 4 + [(48, 16)] * 2 + [(16, 48)])  # q, k, v, o; gate, up; down
    assert sum(len(group["params"]) for group in adam.param_groups) == 4  # embeddings and three norms


@pytest.mark.usefixtures("eager")
def test_tokens_are_single_digits_and_nothing_is_unknown_and_some_rows_fill_the_window(tmp_path):
    config = settings(tmp_path)
    train(config)
    tokenizer = AutoTokenizer.from_pretrained(config.out)
    assert tokenizer.tokenize("Question: 37 + 4\nAnswer:") == ["Question:", "Ġ3", "7", "Ġ+", "Ġ4", "ĊAnswer:"]
    printable = "".join(map(chr, range(32, 127))) + "\n"
    assert tokenizer.decode(tokenizer.encode(printable + "é☺")) == printable + "é☺"
    shapes = [tuple(rows.shape) for rows in islice(batches(config, tokenizer, start=0), 9)]
    assert shapes == [(4, 16)] * 7 + [(2, 32)] + [(4, 16)]
