"""The judge with a linear head on a language model's mean state."""

import json
import logging

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from cory.judges.classifier import Classifier
from cory.judges.linear_head import LinearHead
from cory.pocket import LM
from tests.helpers.models import make_tokenizer


@pytest.fixture(scope="module")
def folder(backbones, tmp_path_factory):
    """A head on the first of two layers of a tiny Llama."""
    path = tmp_path_factory.mktemp("head")
    judge = LinearHead.of_layers(str(backbones["llama"]), 1)
    with torch.no_grad():
        judge.head.weight.copy_(torch.linspace(-1, 1, 32)[None])
        judge.head.bias.fill_(0.25)
    judge.save(path, model=str(backbones["llama"]))
    return path


def test_the_score_is_the_head_on_the_mean_of_the_normed_states_of_the_layer(folder, backbones):
    model = AutoModelForCausalLM.from_pretrained(backbones["llama"])
    texts = ["a good film", "this was the best of all bad films", "I"]
    expected = []
    for text in texts:
        ids = torch.tensor([make_tokenizer()(text)["input_ids"]])
        with torch.no_grad():
            state_TD = model.model.norm(model(ids, output_hidden_states=True).hidden_states[1][0])
        expected.append(float(state_TD.mean(0) @ torch.linspace(-1, 1, 32) + 0.25))
    assert Classifier(folder)(texts) == pytest.approx(expected, abs=1e-5)
    probabilities = Classifier(folder, output="probability")(texts)
    assert probabilities == pytest.approx([1 / (1 + 2.718281828**-x) for x in expected], abs=1e-5)
    assert Classifier(folder, label="negative")(texts) == pytest.approx([-x for x in expected], abs=1e-5)


def test_a_score_does_not_depend_on_the_other_texts(folder):
    judge = Classifier(folder)
    together = judge(["a good film", "this was the best of all bad films, you liked it, I did not"])
    assert judge(["a good film"]) == pytest.approx(together[:1], abs=1e-6)


def test_the_folder_holds_the_head_and_not_the_model(folder):
    assert json.loads((folder / "config.json").read_text())["layers"] == 1
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000


def test_a_head_of_another_width_is_refused(folder, tmp_path):
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    settings = json.loads((folder / "config.json").read_text()) | {"model": str(LM)}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="no sequence classifier could be read from"):
        Classifier(tmp_path)


def test_loading_a_head_reports_nothing_of_the_layers_it_leaves_out(folder, backbones, capfd, monkeypatch):
    """transformers reports every weight of the other layers, and shows a bar."""
    transformers_logging.set_verbosity_warning()  # other tests may have silenced it
    transformers_logging.enable_progress_bar()
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        LinearHead.of_layers(str(backbones["llama"]), 1)
        assert any("LOAD REPORT" in record.getMessage() for record in records)
        assert "Loading weights" in capfd.readouterr().err
        records.clear()
        Classifier(folder)
    finally:
        logger.removeHandler(handler)
    assert not records
    assert capfd.readouterr().err == ""
