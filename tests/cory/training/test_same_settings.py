"""The same settings and seed give the same weights, whatever else the machine does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
import yaml

import cory
from cory.config.parsing import changes
from cory.config.schema import Config
from cory.training import checkpoint
from cory.training.run import train
from tests.helpers.models import save_backbone
from tests.helpers.runs import traces, without_report
from tests.helpers.tables import TABLES

pytestmark = pytest.mark.slow

GIB = 1 << 30
PROMPTS = [{"prompt": f"a good film about {n} films, the best of all that you did like"} for n in range(30)]
KINDS = ("causal_lm", "lora_team")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_backbone("gpt2", tmp_path_factory.mktemp("tiny") / "gpt2")


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    without_report(monkeypatch)


@pytest.fixture
def with_free(monkeypatch) -> Callable[[int], None]:
    """Sets the free memory of this machine."""

    def pretend(free: int) -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free, total=64 * GIB))

    return pretend


def trained(run: Path, model: Path, kind: str, **settings: Any) -> dict[str, Any]:
    """What a run of two iterations on a tiny GPT-2 leaves in its last checkpoint."""
    cory.train(
        dataset=PROMPTS,
        reward=lambda prompts, completions, **columns: [float(len(text) % 5) for text in completions],
        run=run,
        policy={"model": str(model), "kind": kind, "device": "cpu"},
        **{"iterations": 2, "batch": 8, "max_response": (2, 6), "threads": 1, "quiet": True},
        **{"evaluation": {"queries": 4, "every": 0}, "checkpoint_every": 1, "log_to": "none"},
        **settings,
    )
    return traces(run, 2)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all tensors of two checkpoints are equal, bit for bit."""
    files, others = one["tensors"], other["tensors"]
    return files.keys() == others.keys() and all(
        torch.equal(tensor, others[file][name])
        for file, tensors in files.items()
        for name, tensor in tensors.items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_free_memory_changes_no_weight(kind, tiny, tmp_path, with_free):
    """A row of 25 tokens keeps 4 * 25 * 34 * 32 * 2 = 218 kB, so that 0.1 MiB would be a pass of one row."""
    runs = {}
    for free in (1 << 20, 64 * GIB):
        with_free(free)
        runs[free] = trained(tmp_path / str(free), tiny, kind)
    plenty, little = runs[64 * GIB], runs[1 << 20]
    assert equal(plenty, little)
    assert plenty["metrics"] == little["metrics"]
    assert not equal(plenty, trained(tmp_path / "set", tiny, kind, memory=1 << 16))  # passes of one row


def test_a_run_resumed_with_other_free_memory_is_the_run_in_one(tiny, tmp_path, with_free):
    with_free(64 * GIB)
    whole = trained(tmp_path / "whole", tiny, "causal_lm")
    trained(tmp_path / "halves", tiny, "causal_lm")
    checkpoint.folder_of(tmp_path / "halves", 2).rename(tmp_path / "gone")
    with_free(1 << 20)
    assert equal(whole, trained(tmp_path / "halves", tiny, "causal_lm", resume="must"))


def test_measured_values_are_in_the_settings_of_a_run_and_a_resume_takes_them(tmp_path, monkeypatch):
    """A table stands in for policies on an accelerator with 4 GiB at first, and 1 GiB at the resume."""
    free = [4 * GIB, GIB]

    def measured(config: Config, players: object) -> Config:
        return replace(config, memory=free.pop(0)) if config.memory == "auto" else config

    monkeypatch.setattr("cory.training.trainer.resolved", measured)
    config = Config.from_flat({"batch": 4, "iterations": 1, "evaluation.queries": 2, "threads": 1}, TABLES)
    for iterations, resume in ((1, "never"), (2, "must")):
        train(replace(config, iterations=iterations), tmp_path / "run", resume=resume, quiet=True)
        assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["memory"] == 4 * GIB
    with pytest.raises(ValueError, match=f"memory was {4 * GIB} and is 5"):
        train(replace(config, memory=5, iterations=2), tmp_path / "run", resume="must")


def test_auto_is_what_the_run_before_has_measured_and_a_number_is_none_but_its_own():
    before = {"memory": 4 * GIB, "policy.compile": "yes", "seed": 0}
    assert changes(before, {"memory": "auto", "policy.compile": "auto", "seed": 0}) == []
    assert changes(before, before | {"policy.compile": "no"}) == ["policy.compile was 'yes' and is 'no'"]
    assert changes(before | {"memory": "auto"}, before) == [f"memory was 'auto' and is {4 * GIB}"]
