"""Folders of models and of runs that something has befallen: refused as `test_malformed.py` says."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from cory.cli.main import main
from tests.cory.cli.test_malformed import ECHO, place, refused

__all__ = ["place"]


def without(name: str):
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def told_in(name: str, **changes):
    """A JSON file with these entries changed; None takes one out."""

    def change(folder: Path) -> None:
        entries = json.loads((folder / name).read_text()) | changes
        kept = {key: value for key, value in entries.items() if value is not None}
        (folder / name).write_text(json.dumps(kept))

    return change


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def fewer_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    save_file(tensors, path, metadata={"format": "pt"})


MODELS = {
    "no configuration": (without("config.json"), "holds no config.json"),
    "half a configuration": (holding("config.json", b'{"model_type": '), "cannot be loaded"),
    "a configuration that is a list": (holding("config.json", b"[]"), "cannot be loaded"),
    "a configuration of nothing": (holding("config.json", b"{}"), "model_type"),
    "an architecture nobody knows": (told_in("config.json", model_type="gpt9"), "gpt9"),
    "an architecture without words": (
        told_in("config.json", model_type="vit", architectures=None),
        "ViTConfig",
    ),
    "other sizes than the weights": (told_in("config.json", n_embd=48), "cannot be loaded"),
    "no weights": (without("model.safetensors"), "holds no weights"),
    "empty weights": (holding("model.safetensors", b""), "cannot be loaded"),
    "weights cut short": (cut_weights, "cannot be loaded"),
    "weights that are noise": (holding("model.safetensors", bytes(range(256)) * 9), "cannot be loaded"),
    "a tensor less": (fewer_weights, "transformer.h.1.mlp.c_fc.weight"),
    "half a tokenizer": (holding("tokenizer.json", b'{"version": '), "cannot be loaded"),
    "an adapter of nothing": (holding("adapter_config.json", b"{}"), "adapter"),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("kind", ["causal_lm", "lora_team"])
def test_model_folders(case, kind, place, capsys, tiny_folder):
    harm, says = MODELS[case]
    shutil.copytree(tiny_folder, place / "model")
    harm(place / "model")
    argv = ("train", "--task", "echo", "--policy.model", "model", "--policy.kind", kind)
    refused((*argv, "--policy.device", "cpu"), place, capsys, says)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of two iterations."""
    run = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
        argv = (*ECHO, "--batch", "8", "--iterations", "2", "--evaluation.queries", "4")
        assert main([*argv, "--run", str(run)]) == 0
    return run


def all_manifests(content: bytes):
    def change(run: Path) -> None:
        for path in run.glob("checkpoints/*/MANIFEST.json"):
            path.write_bytes(content)

    return change


RESUME = ("train", "--resume", "must", "--run", "run")
RUNS = {
    "settings that are half there": (
        RESUME,
        holding("config.yaml", b'payoff: "coop'),
        "run/config.yaml cannot be read",
    ),
    "settings that are gone": (RESUME, without("config.yaml"), "cannot be resumed"),
    "settings of another algorithm": ((*RESUME, "--algorithm", "rloo"), lambda run: None, "--algorithm."),
    "numbers with a hole": (
        RESUME,
        holding("metrics.jsonl", b'{"iteration": 0\n{"iteration": 1}\n'),
        "line 1 is not JSON",
    ),
    "numbers without iterations": (
        RESUME,
        holding("metrics.jsonl", b'{"a/b/c": 1}\n'),
        "line 1 is no row of an iteration",
    ),
    "checkpoints without a whole one": (RESUME, all_manifests(b"{}"), "step-000000 does not hold"),
    "checkpoints that are damaged": (RESUME, all_manifests(b"\xff"), "MANIFEST.json is damaged"),
    "auto among damaged ones": (
        ("train", "--resume", "auto", "--run", "run"),
        all_manifests(b"[]"),
        "MANIFEST.json is damaged",
    ),
    "a run that must not be touched": ((*ECHO, "--run", "run"), lambda run: None, "is not empty"),
    "a file where folders should be": ((*ECHO, "--run", "precious/run"), lambda run: None, "Not a directory"),
    "a report of broken numbers": (
        ("report", "run"),
        holding("metrics.jsonl", b"{\n{}\n"),
        "line 1 is not JSON",
    ),
    "a report of no run": (("report", "{place}"), lambda run: None, "holds no metrics.jsonl"),
    "evaluation of nothing": (("evaluate",), lambda run: None, "name one or more"),
    "evaluation of what is not there": (
        ("evaluate", "nowhere/at/all"),
        lambda run: None,
        "there is no folder",
    ),
    "evaluation on no queries": (
        ("evaluate", "run", "--queries", "0"),
        lambda run: None,
        "evaluation.queries is 0",
    ),
    "evaluation into no folder": (
        ("evaluate", "run", "--json", "no/where.json"),
        lambda run: None,
        "there is no folder no",
    ),
    "play in a seat there is not": (
        ("play", "run", "--seat", "observer_7"),
        lambda run: None,
        "choose one of 'pioneer_0'",
    ),
    "play no games": (("play", "run", "--games", "0"), lambda run: None, "games is 0"),
    "play of what is not there": (("play", "nowhere/at/all"), lambda run: None, "there is no folder"),
    "play of a policy whose weights are gone": (
        ("play", "run"),
        without("policies/llm_2/table.safetensors"),
        "table.safetensors",
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_run_directories(case, place, capsys, finished):
    argv, harm, says = RUNS[case]
    shutil.copytree(finished, place / "run")
    harm(place / "run")
    refused(argv, place, capsys, says)
