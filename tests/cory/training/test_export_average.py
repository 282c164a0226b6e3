"""`evaluation.average`: what is written is what was evaluated, and is evaluated like any policy."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cory.cli.main import main
from cory.config.values import flat
from cory.evaluation.config import EvaluationConfig
from cory.learner.optimizer import LearnerConfig
from cory.training import checkpoint, run_directory
from cory.training.factory import start_models
from cory.training.run import train
from cory.training.targets import find
from tests.helpers.runs import without_report
from tests.helpers.tables import flagged, tiny_reviews


@pytest.fixture
def config(tmp_path, tiny_folder, monkeypatch):
    """Two policies of a tiny model, which learn for two iterations."""
    without_report(monkeypatch)
    return tiny_reviews(
        tmp_path,
        tiny_folder,
        learner=LearnerConfig(lr=0.01),
        evaluation=EvaluationConfig(queries=4, every=0, average=True),
    )


def weights_of(folder):
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_the_mean_of_both_policies_is_exported_and_evaluated_like_a_policy(config, tmp_path, capsys):
    run = tmp_path / "run"
    train(config, run)
    one, two, mean = (weights_of(run / name) for name in ("policies/llm_1", "policies/llm_2", "average"))
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + two[name]) / 2, rtol=1e-5, atol=1e-7)
    assert any(bool((one[name] - two[name]).abs().max() > 1e-3) for name in mean)
    AutoModelForCausalLM.from_pretrained(run / "average")
    assert "# average The mean of the policies' weights. Fine-tuned from" in " ".join(
        (run / "average/README.md").read_text().split()
    )
    assert find(str(run)).folders.keys() == {"llm_1", "llm_2"}
    written = flat(find(str(run / "average")).config)
    assert written == {**flat(config), "policy.compile": "no"}  # what auto is for a small model
    capsys.readouterr()
    assert main(["evaluate", str(run), str(run / "average")]) == 0
    assert "average" in capsys.readouterr().out


@pytest.mark.slow
def test_with_export_best_it_is_the_mean_of_the_best(config, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr(run_directory, "best_of", lambda run: {"iteration": 1, "score": 0.0})
    learner = replace(config.learner, ema=0.5)
    best = replace(config, export_best=True, learner=learner, checkpoint_every=1, keep_checkpoints=9)
    train(best, run)
    start = AutoModelForCausalLM.from_pretrained(config.policy.model).state_dict()
    policies = [weights_of(run / f"policies/llm_{i}") for i in (1, 2)]
    for name, weight in weights_of(run / "average").items():
        moving = [(start[name] + policy[name]) / 2 for policy in policies]  # after one iteration of decay 0.5
        torch.testing.assert_close(weight, (moving[0] + moving[1]) / 2, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_the_moving_average_of_an_adapter_is_exported_as_a_whole_model(config, tmp_path):
    run = tmp_path / "run"
    policy, learner = replace(config.policy, kind="lora_team"), replace(config.learner, ema=0.5)
    train(replace(config, policy=policy, learner=learner, seats=1, iterations=1, checkpoint_every=1), run)
    assert not (run / "average/adapter_config.json").exists()
    mean, start = weights_of(run / "average"), weights_of(Path(config.policy.model))
    first, last = (
        load_file(folder / "adapter_model.safetensors")
        for folder in (checkpoint.folder_of(run, 0) / "llm_1", run / "policies/llm_1")
    )
    moving = {name: (first[name] + last[name]) / 2 for name in first}  # one iteration of decay 0.5
    layer = "transformer.h.0.attn.c_attn"
    down, up = (moving[f"base_model.model.{layer}.lora_{factor}.weight"] for factor in "AB")
    scale = config.lora.alpha / config.lora.rank
    change = mean[f"{layer}.weight"] - start[f"{layer}.weight"]
    torch.testing.assert_close(change, scale * (up @ down).T, rtol=1e-4, atol=1e-7)
    assert change.abs().max() > 1e-4


@pytest.mark.slow
def test_the_mean_of_two_adapters_is_the_mean_of_what_they_add_to_the_model(config, tmp_path):
    """The oracle is the mean of both policies' whole models, merged by PEFT from the exported folders."""
    run = tmp_path / "run"
    train(replace(config, policy=replace(config.policy, kind="lora_team")), run)
    start = AutoModelForCausalLM.from_pretrained(config.policy.model)
    one, two = (
        peft.PeftModel.from_pretrained(deepcopy(start), str(run / f"policies/llm_{i}")).merge_and_unload()
        for i in (1, 2)
    )
    mean, one, two = weights_of(run / "average"), one.state_dict(), two.state_dict()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + two[name]) / 2, rtol=1e-4, atol=1e-6)
    name = "transformer.h.0.attn.c_attn.weight"
    assert (one[name] - two[name]).abs().max() > 1e-3
    assert (mean[name] - start.state_dict()[name]).abs().max() > 1e-4
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert any("eval/average/kl" in json.loads(row) for row in rows)


def test_the_reference_of_an_average_is_the_model_that_all_policies_started_from():
    config = flagged("--policy.kind", "causal_lm", "--policy.models", "a", "a")
    assert start_models(config, ["llm_2", "average"]) == {"llm_2": "a", "average": "a"}


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (
            ("--learner.ema", "0.5", "--policy.kind", "causal_lm", "--policy.models", "a", "b"),
            "learner.ema: policies of several models have no mean",
        ),
    ],
)
def test_where_there_is_no_mean_it_is_refused(flags, fault):
    with pytest.raises(ValueError, match=fault):
        flagged(*flags)
