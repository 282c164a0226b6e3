"""Pretraining of the pocket LM: resuming, rows."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.pocket_models import pretrain
from examples.pocket_models.pretrain import Config, rows_of, train


@pytest.fixture
def data(tmp_path):
    texts = [
        f"this <br />film number {i} was {word} from start to end"
        for i in range(60)
        for word in ("good", "bad")
    ]
    pq.write_table(pa.table({"text": texts, "label": [-1] * len(texts)}), tmp_path / "unsup.parquet")
    return tmp_path / "unsup.parquet"


def settings(data, name: str) -> Config:
    small = {"rows": 4, "context": 16, "layers": 1, "width": 16, "heads": 2, "warmup": 1}
    return Config(
        data=data, work=data.parent / name, out=data.parent / name / "lm", steps=6, save_every=2, **small
    )


@pytest.mark.usefixtures("eager")
def test_a_killed_pretraining_resumes_to_the_same_weights(data, monkeypatch):
    train(settings(data, "whole"))
    original, calls = pretrain.next_token_loss, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(pretrain, "next_token_loss", dies)
    with pytest.raises(KeyboardInterrupt):
        train(settings(data, "cut"))
    monkeypatch.setattr(pretrain, "next_token_loss", original)
    train(settings(data, "cut"))
    whole, cut = (
        AutoModelForCausalLM.from_pretrained(data.parent / name / "lm") for name in ("whole", "cut")
    )
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(data.parent / "cut/lm").eos_token_id == 0


def test_rows_start_with_reviews_and_lose_next_to_nothing():
    documents = [[1] * 7, [2] * 3, [3] * 2]
    rows = rows_of(documents, context=4, end=0, seed=0)
    assert all(len(row) == 4 for row in rows)
    assert [0, 1, 1, 1] in rows  # a long review begins a row
    assert [0, 2, 2, 2] in rows
    assert sum(map(len, rows)) > sum(map(len, documents))
