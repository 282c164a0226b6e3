"""`cory average` on model folders: the mean by hand, interpolation, and refusals."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import cory
from cory.cli.main import main
from tests.helpers.models import make_model
from tests.helpers.runs import without_report
from tests.helpers.tables import letters


def model(folder, fill: float, *, window: int = 16):
    made = make_model("gpt2", vocab_size=len(letters()), window=window)
    with torch.no_grad():
        for weight in made.parameters():
            weight.fill_(fill)
    made.save_pretrained(folder)
    letters().save_pretrained(folder)
    return folder


def weights_of(folder) -> set[float]:
    return {
        value
        for tensor in load_file(folder / "model.safetensors").values()
        for value in tensor.unique().tolist()
    }


def test_mean_of_two_models_loads_in_transformers_and_names_its_sources(tmp_path, capsys):
    one, four = model(tmp_path / "one", 1.0), model(tmp_path / "four", 4.0)
    assert main(["average", str(one), str(four), "--out", str(tmp_path / "mean")]) == 0
    assert weights_of(tmp_path / "mean") == {2.5}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "mean")
    assert all(bool((weight == 2.5).all()) for weight in loaded.parameters())
    content = json.loads((tmp_path / "mean" / "average.json").read_text())
    assert content == {"mean_of": [str(one), str(four)], "weights": [0.5, 0.5]}
    assert "mean" in capsys.readouterr().out
    assert weights_of(one) == {1.0}


def test_weights_interpolate(tmp_path):
    one, four = model(tmp_path / "one", 1.0), model(tmp_path / "four", 4.0)
    cory.average([one, four], tmp_path / "mean", weights=[0.75, 0.25])
    assert weights_of(tmp_path / "mean") == {1.75}


def test_models_without_a_mean_are_refused_and_nothing_is_written(tmp_path, capsys):
    one, longer = model(tmp_path / "one", 1.0), model(tmp_path / "longer", 4.0, window=32)
    for targets, fault in (([one], "needs two policies or more"), ([one, longer], "differ in shape")):
        assert main(["average", *map(str, targets), "--out", str(tmp_path / "mean")]) == 2
        assert fault in capsys.readouterr().err
    with pytest.raises(ValueError, match="is not empty"):
        cory.average([one, longer], one)
    assert not (tmp_path / "mean").exists()


def test_lookup_tables_have_no_mean(tmp_path, capsys, monkeypatch):
    without_report(monkeypatch)
    small = {"iterations": 1, "batch": 2, "max_response": (1, 1), "evaluation": {"queries": 2, "every": 0}}
    cory.train(task="echo", policy={"kind": "table"}, run=tmp_path / "run", **small)
    assert main(["average", str(tmp_path / "run"), "--out", str(tmp_path / "mean")]) == 2
    assert "only language models are averaged" in capsys.readouterr().err
