"""Alerts: warnings from rows made by hand, and errors that leave the batches of a diverged run."""

import math

import pytest
import torch
from safetensors.torch import load_file

from cory.cli.main import main
from cory.learner.learner import Learner
from cory.tracking import alerts
from tests.helpers.runs import FLAGS, without_report

ARGV = ("train", *FLAGS, "--iterations", "4")


@pytest.fixture(autouse=True)
def four(monkeypatch):
    """Means over four iterations."""
    monkeypatch.setattr(alerts, "WINDOW", 4)


def row(pioneer: float, observer: float, *, kl: float = 1.0, swapped: bool = False) -> dict[str, float]:
    """The metrics of one iteration that alerts read; `kl` is that of llm_1, of llm_2 it is 1."""
    first, second = ("llm_2", "llm_1") if swapped else ("llm_1", "llm_2")
    kl_of = {"llm_1": kl, "llm_2": 1.0}
    return {
        f"pioneer_0/{first}/task_reward": pioneer,
        f"observer_1/{second}/task_reward": observer,
        f"pioneer_0/{first}/kl": kl_of[first],
        f"observer_1/{second}/kl": kl_of[second],
        "time/update/seconds": 0.1,
    }


def test_a_policy_that_leaves_its_reference_is_reported():
    rows = [row(0, 0, kl=51)] * 4
    warnings = alerts.training(rows)
    assert list(warnings) == ["runaway llm_1"]
    assert "KL of llm_1 has been above 50.0 nats per response for 4 iterations" in warnings["runaway llm_1"]


@pytest.mark.parametrize(
    "rows",
    [
        [row(0, 0, kl=51)] * 3,
        [*[row(0, 0, kl=51)] * 3, row(0, 0, kl=50)],
        [row(0, 0, kl=49), *[row(0, 0, kl=51)] * 3],
    ],
    ids=["not yet long enough", "back again", "not yet all of them"],
)
def test_a_policy_is_not_reported_before_its_kl_was_high_in_the_whole_window(rows):
    assert alerts.training(rows) == {}


def test_a_policy_is_followed_across_exchanges():
    """llm_1 at 60 nats sits as pioneer, observer, pioneer, observer; llm_2 stays at 1."""
    rows = [row(0, 0, kl=60, swapped=bool(i % 2)) for i in range(4)]
    assert list(alerts.training(rows)) == ["runaway llm_1"]


def explained(*shares: float, policy: str = "llm_1", place: str = "pioneer_0") -> list[dict[str, float]]:
    return [{f"{place}/{policy}/explained_variance": share, f"{place}/{policy}/kl": 1.0} for share in shares]


def test_a_value_head_that_explains_nothing_is_reported():
    rows = explained(0.9, 0.9, 0.9, 0.9, -0.05, 0.04, 0.03, -0.02)
    warnings = alerts.training(rows)
    assert list(warnings) == ["dead critic llm_1"]
    assert "the value head of llm_1 has explained at most 0.04 of the" in warnings["dead critic llm_1"]
    assert "raise learner.value-lr or algorithm.value-clip" in warnings["dead critic llm_1"]


def test_the_explained_variance_of_a_policy_is_that_of_all_its_seats():
    """llm_1 explains 0.12 as pioneer and 0 as observer."""
    rows = [*explained(0.0, 0.0), *explained(0.12, 0.0, 0.12, 0.0, 0.12, 0.0)]
    for i, each in enumerate(rows):
        if i % 2:
            each["observer_1/llm_1/explained_variance"] = each.pop("pioneer_0/llm_1/explained_variance")
    assert alerts.training(rows) == {}
    rows[-1]["observer_1/llm_1/explained_variance"] = math.nan
    assert alerts.training(rows) == {}
    for each in rows[::2]:
        each["pioneer_0/llm_1/explained_variance"] = 0.04
    assert list(alerts.training(rows)) == ["dead critic llm_1"]


@pytest.mark.parametrize(
    "rows",
    [
        explained(*[0.0] * 7),
        explained(*[-0.3] * 7, 0.06),
        explained(*[math.nan] * 8),
        explained(*[0.0] * 4, *[math.nan] * 3, 0.0),
        [{"a/b/kl": 1.0}] * 8,
    ],
    ids=["too early", "it explains some by now", "no finite value", "equal returns", "no value head"],
)
def test_a_value_head_is_not_reported_without_reason(rows):
    assert alerts.training(rows) == {}


def test_a_central_critic_is_reported_in_place_of_value_heads():
    rows = [
        a | b
        for a, b in zip(
            explained(*[0.0] * 8, policy="critic", place="all"), explained(*[0.0] * 8), strict=True
        )
    ]
    warnings = alerts.training(rows)
    assert list(warnings) == ["dead critic critic"]
    assert "the central critic has explained at most 0.00" in warnings["dead critic critic"]
    assert warnings["dead critic critic"].endswith("raise critic.lr")


@pytest.mark.parametrize(("value", "is_worse"), [(0.1396, False), (0.138, True)])
def test_a_loss_that_no_printed_digit_shows_is_no_warning(value, is_worse):
    metrics = {"eval/reference/combined_reward": 0.14, "eval/llm_1/combined_reward": value}
    found = alerts.evaluation(metrics | {"eval/llm_1/gain_error": 1e-9}, queries=alerts.FEW)
    assert ("worse llm_1" in found) == is_worse


def test_collapsed_responses_are_reported_beside_their_own_reference():
    """distinct-2 of llm_1 falls from 0.8 to 0.3, below the half of it; of llm_2 from 0.4 to 0.3, above."""
    metrics = {
        "eval/reference_llm_1/distinct_2": 0.8, "eval/llm_1/distinct_2": 0.3,
        "eval/reference_llm_2/distinct_2": 0.4, "eval/llm_2/distinct_2": 0.3,
    }  # fmt: skip
    warnings = alerts.evaluation(metrics, queries=0)
    assert list(warnings) == ["collapse llm_1"]
    assert "distinct-2 is 0.30, the reference's 0.80" in warnings["collapse llm_1"]
    shared = {"eval/reference/distinct_2": 0.8, "eval/llm_1/distinct_2": 0.3}
    assert list(alerts.evaluation(shared, queries=0)) == ["collapse llm_1"]
    assert alerts.evaluation(shared | {"eval/llm_1/distinct_2": 0.41}, queries=0) == {}


@pytest.fixture
def no_report(monkeypatch):
    without_report(monkeypatch)


@pytest.mark.usefixtures("no_report")
def test_a_warning_is_printed_once_and_ends_the_run_with_alerts_stop(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(alerts, "WINDOW", 2)
    monkeypatch.setattr(alerts, "RUNAWAY_KL", 1e-9)
    assert main([*ARGV, "--run", str(tmp_path / "on")]) == 0
    assert " ".join(capsys.readouterr().err.split()).count("warning: KL of llm_1 has been above") == 1
    assert main([*ARGV, "--alerts.stop", "--run", str(tmp_path / "off")]) == 1
    error = capsys.readouterr().err
    assert "error: training diverged: iteration" in error
    assert "has been above 1e-09 nats" in error
    assert (tmp_path / "off/checkpoints/step-000000/MANIFEST.json").exists()


@pytest.mark.usefixtures("no_report")
def test_the_error_for_a_number_that_is_not_finite_names_iteration_policy_and_rows_and_leaves_the_batch(
    tmp_path, capsys, monkeypatch
):
    """A payoff of llm_2 is NaN in iteration 1, in which it sits as the observer."""
    rewards = Learner.rewards

    def poisoned(self, batches):
        rewards_by_batch = rewards(self, batches)
        if self.policy.name == "llm_2" and self.policy.version == 4:
            rewards_by_batch[0][5, 0] = math.nan
        return rewards_by_batch

    monkeypatch.setattr(Learner, "rewards", poisoned)
    run = tmp_path / "run"
    assert main([*ARGV, "--run", str(run)]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "error: training diverged: iteration 1: " in error
    assert "of policy 'llm_2' is not finite on rows [" in error
    dump = run / "diverged-000001.safetensors"
    assert str(dump) in error
    tensors = load_file(dump)
    assert {key.split(".")[0] for key in tensors} == {"pioneer_0", "observer_1"}
    assert tensors["observer_1.payoff_B"].shape == (16,)
    assert tensors["observer_1.response_BT"].shape[0] == 16


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("cannot have it"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_error_for_memory_that_runs_out_names_sizes_and_settings_that_help(
    tmp_path, capsys, monkeypatch, error
):
    def out_of_memory(*rest, **more):
        raise error

    monkeypatch.setattr(Learner, "update", out_of_memory)
    assert main([*ARGV, "--run", str(tmp_path / "run")]) == 1
    error = " ".join(capsys.readouterr().err.split())
    for part in (
        "iteration 0", "16 games", "up to 3 tokens", "8 ids", "learner.microbatches (now 1)",
        "policy.gradient_checkpointing", "policy.kind lora_team", "lower batch", str(error)[:40],
    ):  # fmt: skip
        assert part in error


@pytest.mark.usefixtures("no_report")
def test_any_other_error_is_raised_as_it_is(tmp_path, monkeypatch):
    def faulty(*rest, **more):
        raise RuntimeError("something else")

    monkeypatch.setattr(Learner, "update", faulty)
    with pytest.raises(RuntimeError, match="something else"):
        main([*ARGV, "--run", str(tmp_path / "run")])
