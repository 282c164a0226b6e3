"""Damaged folders of models and of runs are refused as malformed flags are."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.helpers.runs import ECHO, assert_refused, finished_run


def without(name: str):
    return lambda folder: (folder / name).unlink()


def with_content(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def with_entries(name: str, **changes):
    """Change entries of a JSON file; None removes one."""

    def change(folder: Path) -> None:
        entries = json.loads((folder / name).read_text()) | changes
        present = {key: value for key, value in entries.items() if value is not None}
        (folder / name).write_text(json.dumps(present))

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
    "half a configuration": (with_content("config.json", b'{"model_type": '), "cannot be loaded"),
    "a configuration that is a list": (with_content("config.json", b"[]"), "cannot be loaded"),
    "a configuration of nothing": (with_content("config.json", b"{}"), "model_type"),
    "an unknown architecture": (with_entries("config.json", model_type="gpt9"), "gpt9"),
    "an architecture that writes no text": (
        with_entries("config.json", model_type="vit", architectures=None),
        "ViTConfig",
    ),
    "other sizes than the weights": (with_entries("config.json", n_embd=48), "cannot be loaded"),
    "no weights": (without("model.safetensors"), "holds no weights"),
    "empty weights": (with_content("model.safetensors", b""), "cannot be loaded"),
    "weights cut short": (cut_weights, "cannot be loaded"),
    "weights that are noise": (with_content("model.safetensors", bytes(range(256)) * 9), "cannot be loaded"),
    "a missing tensor": (fewer_weights, "transformer.h.1.mlp.c_fc.weight"),
    "half a tokenizer": (with_content("tokenizer.json", b'{"version": '), "cannot be loaded"),
    "an adapter of nothing": (with_content("adapter_config.json", b"{}"), "adapter"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("kind", ["causal_lm", "lora_team"])
def test_model_folders(case, kind, workspace, capsys):
    harm, message = MODELS[case]
    harm(workspace / "model")
    argv = ("train", "--task", "echo", "--policy.model", "model", "--policy.kind", kind)
    assert_refused((*argv, "--policy.device", "cpu"), workspace, capsys, message)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return finished_run(tmp_path_factory)


def all_manifests(content: bytes):
    def change(run: Path) -> None:
        for path in run.glob("checkpoints/*/MANIFEST.json"):
            path.write_bytes(content)

    return change


RESUME = ("train", "--resume", "must", "--run", "run")
RUNS = {
    "settings cut short": (
        RESUME,
        with_content("config.yaml", b'payoff: "coop'),
        "run/config.yaml cannot be read",
    ),
    "missing settings": (RESUME, without("config.yaml"), "cannot be resumed"),
    "settings of another algorithm": (
        (*RESUME, "--algorithm", "rloo"),
        lambda run: None,
        "algorithm was 'ppo' and is 'rloo'",
    ),
    "metrics with a broken line": (
        RESUME,
        with_content("metrics.jsonl", b'{"iteration": 0\n{"iteration": 1}\n'),
        "line 1 is not JSON",
    ),
    "metrics without iterations": (
        RESUME,
        with_content("metrics.jsonl", b'{"a/b/c": 1}\n'),
        "line 1 is not a row of an iteration",
    ),
    "checkpoints without a whole one": (RESUME, all_manifests(b"{}"), "step-000000 does not hold"),
    "checkpoints that are damaged": (RESUME, all_manifests(b"\xff"), "MANIFEST.json is damaged"),
    "auto with damaged checkpoints only": (
        ("train", "--resume", "auto", "--run", "run"),
        all_manifests(b"[]"),
        "MANIFEST.json is damaged",
    ),
    "a run that is not to be overwritten": ((*ECHO, "--run", "run"), lambda run: None, "is not empty"),
    "a file where folders should be": ((*ECHO, "--run", "precious/run"), lambda run: None, "Not a directory"),
    "a report of broken metrics": (
        ("report", "run"),
        with_content("metrics.jsonl", b"{\n{}\n"),
        "line 1 is not JSON",
    ),
    "a report of no run": (("report", "{place}"), lambda run: None, "holds no metrics.jsonl"),
    "evaluation of nothing": (("evaluate",), lambda run: None, "name one or more"),
    "evaluation of a missing folder": (
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
        ("evaluate", "run", "--out", "no/where.json"),
        lambda run: None,
        "there is no folder no",
    ),
    "play in an unknown seat": (
        ("play", "run", "--seat", "observer_7"),
        lambda run: None,
        "choose one of 'pioneer_0'",
    ),
    "play no games": (("play", "run", "--games", "0"), lambda run: None, "games is 0"),
    "play of a missing folder": (("play", "nowhere/at/all"), lambda run: None, "there is no folder"),
    "play of a policy without weights": (
        ("play", "run"),
        without("policies/llm_2/table.safetensors"),
        "table.safetensors",
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_run_directories(case, workspace, capsys, finished):
    argv, harm, message = RUNS[case]
    shutil.copytree(finished, workspace / "run")
    harm(workspace / "run")
    assert_refused(argv, workspace, capsys, message)
