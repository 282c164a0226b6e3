"""Passes that run out of memory are taken again in smaller ones, with the results of smaller ones."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from cory.config.schema import Config
from cory.policies.base import Policy
from cory.policies.scoring import evaluate
from cory.runtime.memory import BYTES_PER_LOGIT, MemoryBudget, NoSmallerPassError
from cory.training import checkpoint
from cory.training.run import train
from tests.helpers.batches import B, make_batch, make_rows, sample_responses
from tests.helpers.learners import advantage_of, gradients_used, make_learner
from tests.helpers.models import pair
from tests.helpers.runs import traces, without_report
from tests.helpers.short_memory import logits_at_most, rows_at_most
from tests.helpers.tables import TABLES

pytestmark = pytest.mark.slow


def with_budget(budget: MemoryBudget) -> Policy:
    """A GPT-2 and its reference, which share a budget."""
    policy = pair("gpt2")
    policy.budget = policy.reference.budget = budget
    return policy


def plenty() -> MemoryBudget:
    return MemoryBudget(activations=1 << 30, logits=1 << 30)


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda policy: vars(sample_responses(policy)), 2),
        (lambda policy: evaluate(policy, make_rows(policy)[0])._asdict(), 4),
    ],
    ids=["sampling", "scoring"],
)
def test_sampling_and_scoring_give_what_smaller_passes_give(work: Callable[[Policy], Any], most):
    policy = with_budget(plenty())
    with rows_at_most(most) as passes:
        found = work(policy)
    assert passes[0] == B
    assert max(passes[-3:]) <= most
    budget = policy.budget
    assert 1 < budget.activations < 1 << 30
    with rows_at_most(most) as passes:
        want = work(with_budget(replace(budget)))  # nothing runs out with this budget
    assert max(passes) <= most
    for name, tensor in want.items():
        assert torch.equal(found[name], tensor), name


def test_a_step_starts_anew_without_the_gradients_of_its_first_attempt():
    """Six rows in two micro-batches of three: the first fits, the second does not."""
    used, smaller, batch = [], plenty(), make_batch(with_budget(plenty()))
    for short in (True, False):
        policy = with_budget(replace(smaller))
        learner = make_learner(policy, microbatches=2)
        gradients, advantage = gradients_used(learner), advantage_of(learner, batch)
        with rows_at_most(2, after=1 if short else 0) as passes:
            parts, verdict = learner.step(batch, advantage, torch.arange(B))
        assert verdict == "step"
        assert (passes[:2], passes[-4:]) == ([3, 3] if short else [2, 1], [2, 1, 2, 1])
        assert len(parts) == 4
        smaller = policy.budget
        used += gradients
    assert smaller.activations < 1 << 30
    for name, gradient in used[1].items():
        assert torch.equal(used[0][name], gradient), name


def test_means_of_micro_batches_are_split_no_further():
    policy = with_budget(MemoryBudget(activations=1 << 30, logits=1))
    batch = make_batch(policy)
    learner = make_learner(policy, microbatches=2, accumulation_mean="microbatch")
    advantage = advantage_of(learner, batch)
    with rows_at_most(2), pytest.raises(NoSmallerPassError, match="while learning"):
        learner.step(batch, advantage, torch.arange(B))


def test_the_error_of_a_smallest_pass_names_settings():
    policy = with_budget(MemoryBudget(activations=1, logits=1))
    with rows_at_most(0), pytest.raises(NoSmallerPassError) as error:
        sample_responses(policy)
    text = str(error.value)
    assert text.startswith("memory ran out while sampling, and passes can be no smaller (CUDA out of memory.")
    assert "policy.gradient_checkpointing" in text
    assert "and more" not in text


def test_a_budget_is_halved_until_it_is_one_byte():
    budget = MemoryBudget(activations=4, logits=1)
    assert budget.halve()
    assert budget == MemoryBudget(activations=2, logits=1)
    assert budget.halve()
    assert not budget.halve()


def test_a_run_says_once_that_passes_are_smaller_and_saves_their_size(tmp_path, capsys, monkeypatch):
    """16 games of three tokens: up to 48 at once, of which 10 fit."""
    without_report(monkeypatch)
    settings = {"batch": 16, "iterations": 3, "checkpoint_every": 1, "keep_checkpoints": 9, "threads": 1}
    config = Config.from_flat(settings | {"evaluation.queries": 8, "kl.coef": 0.1}, TABLES)
    with logits_at_most(10):
        train(config, tmp_path / "short")
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("memory ran out; passes are smaller from now on") == 1
    state = json.loads((checkpoint.folder_of(tmp_path / "short", 3) / "trainer_state.json").read_text())
    saved = MemoryBudget(**state["memory_budget"])
    assert saved.activations == 4 * saved.logits
    assert 5 <= saved.logits // (BYTES_PER_LOGIT * 8) <= 10
    train(replace(config, memory=4 * saved.logits), tmp_path / "small", quiet=True)
    short, small = (traces(tmp_path / name, 3) for name in ("short", "small"))
    assert short["metrics"] == small["metrics"]
    for file, tensors in small["tensors"].items():
        assert all(torch.equal(short["tensors"][file][key], tensor) for key, tensor in tensors.items())


def test_a_run_without_memory_for_the_smallest_pass_ends_with_iteration_and_settings(tmp_path, monkeypatch):
    without_report(monkeypatch)
    config = Config.from_flat({"batch": 4, "iterations": 1, "evaluation.queries": 1, "threads": 1}, TABLES)
    with (
        logits_at_most(0, learning=True),
        pytest.raises(MemoryError, match=r"iteration 0: memory ran out while learning.*learner.microbatches"),
    ):
        train(config, tmp_path / "run", quiet=True)
