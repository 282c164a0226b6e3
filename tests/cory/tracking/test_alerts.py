"""Runs that go wrong are named: warnings from rows made by hand, and errors that leave what they saw."""

import math

import pytest
import torch
from safetensors.torch import load_file

from cory.cli.main import main
from cory.learner.learner import Learner
from cory.tracking import alerts
from cory.tracking.alerts import AlertsConfig
from cory.training.trainer import Trainer
from tests.cory.training.test_resume import FLAGS

FOUR = AlertsConfig(window=4)
ARGV = ("train", *FLAGS, "--iterations", "4")


def row(pioneer: float, observer: float, *, kl: float = 1.0, swapped: bool = False) -> dict[str, float]:
    """The numbers of one iteration that alerts look at; KL is that of llm_1, of llm_2 it is 1."""
    first, second = ("llm_2", "llm_1") if swapped else ("llm_1", "llm_2")
    price = {"llm_1": kl, "llm_2": 1.0}
    return {
        f"pioneer_0/{first}/task_reward": pioneer,
        f"observer_1/{second}/task_reward": observer,
        f"pioneer_0/{first}/kl": price[first],
        f"observer_1/{second}/kl": price[second],
        "time/update/seconds": 0.1,
    }


def test_a_policy_that_leaves_its_reference_is_named():
    rows = [row(0, 0, kl=51)] * 4
    told = alerts.training(rows, FOUR)
    assert list(told) == ["runaway llm_1"]
    assert "KL of llm_1 has been above 50.0 nats per response for 4 iterations" in told["runaway llm_1"]


@pytest.mark.parametrize(
    "rows",
    [
        [row(0, 0, kl=51)] * 3,
        [*[row(0, 0, kl=51)] * 3, row(0, 0, kl=50)],
        [row(0, 0, kl=49), *[row(0, 0, kl=51)] * 3],
    ],
    ids=["not yet long enough", "back again", "not yet all of them"],
)
def test_a_policy_is_not_named_before_it_has_been_away_all_the_time(rows):
    assert alerts.training(rows, FOUR) == {}


def test_who_runs_away_is_known_across_exchanges():
    """llm_1 at 60 nats sits as pioneer, observer, pioneer, observer; llm_2 stays at 1."""
    rows = [row(0, 0, kl=60, swapped=bool(i % 2)) for i in range(4)]
    assert list(alerts.training(rows, FOUR)) == ["runaway llm_1"]


def test_a_pioneer_that_gains_nothing_below_all_observers_is_named():
    """Pioneer 0.2 all along; observer 0.5, then 0.9: the observer carries it too."""
    rows = [*[row(0.2, 0.5)] * 4, *[row(0.2, 0.9)] * 4]
    told = alerts.training(rows, FOUR)
    assert "gained nothing (+0.00) and scored below every observer" in told["weak pioneer"]
    assert "observer_1 carries the payoffs: its task reward rose by 0.40" in told["one seat"]


@pytest.mark.parametrize(
    "rows",
    [
        [*[row(0.2, 0.5)] * 4, *[row(0.3, 0.6)] * 4],
        [*[row(0.6, 0.5)] * 4, *[row(0.6, 0.55)] * 4],
        [*[row(0.2, 0.5)] * 3, *[row(0.2, 0.9)] * 4],
    ],
    ids=["both gain", "the pioneer is ahead", "too early to say"],
)
def test_a_pioneer_is_not_named_without_reason(rows):
    assert "weak pioneer" not in alerts.training(rows, FOUR)


def test_a_single_seat_carries_nothing():
    rows = [{"pioneer_0/llm_1/task_reward": float(i), "pioneer_0/llm_1/kl": 1.0} for i in range(8)]
    assert alerts.training(rows, FOUR) == {}


def test_answers_that_have_collapsed_are_named_beside_their_own_reference():
    """distinct-2 of llm_1 falls from 0.8 to 0.3, below the half of it; of llm_2 from 0.4 to 0.3, above."""
    numbers = {
        "eval/reference_llm_1/distinct_2": 0.8, "eval/llm_1/distinct_2": 0.3,
        "eval/reference_llm_2/distinct_2": 0.4, "eval/llm_2/distinct_2": 0.3,
    }  # fmt: skip
    told = alerts.evaluation(numbers, AlertsConfig(distinct=0.5))
    assert list(told) == ["collapse llm_1"]
    assert "distinct-2 is 0.30, the reference's 0.80" in told["collapse llm_1"]
    shared = {"eval/reference/distinct_2": 0.8, "eval/llm_1/distinct_2": 0.3}
    assert list(alerts.evaluation(shared, AlertsConfig(distinct=0.5))) == ["collapse llm_1"]
    assert alerts.evaluation(shared, AlertsConfig(distinct=0.3)) == {}


@pytest.mark.parametrize("broken", [{"kl": 0}, {"kl": math.nan}, {"window": 0}, {"distinct": 1.1}])
def test_guards_that_guard_nothing_are_refused(broken):
    with pytest.raises(ValueError, match="guards are"):
        AlertsConfig(**broken)


@pytest.fixture
def no_page(monkeypatch):
    monkeypatch.setattr("cory.training.run.write_report", lambda run: run / "report.html")


@pytest.mark.usefixtures("no_page")
def test_a_warning_is_said_once_and_ends_the_run_where_that_is_asked(tmp_path, capsys):
    low = ("--alerts.kl", "1e-9", "--alerts.window", "2")
    assert main([*ARGV, *low, "--run", str(tmp_path / "on")]) == 0
    assert " ".join(capsys.readouterr().err.split()).count("warning: KL of llm_1 has been above") == 1
    assert main([*ARGV, *low, "--alerts.stop", "--run", str(tmp_path / "off")]) == 1
    said = capsys.readouterr().err
    assert "error: the run is sick: iteration" in said
    assert "has been above 1e-09 nats" in said
    assert (tmp_path / "off/checkpoints/step-000000/MANIFEST.json").exists()


@pytest.mark.usefixtures("no_page")
def test_a_number_that_is_not_finite_names_iteration_policy_and_rows_and_leaves_the_batch(
    tmp_path, capsys, monkeypatch
):
    """INVARIANTS 20: a payoff of llm_2 turns NaN in iteration 1, where it sits as the observer."""
    plain = Learner.rewards

    def poisoned(self, batches):
        told = plain(self, batches)
        if self.policy.name == "llm_2" and self.policy.version == 4:
            told[0][5, 0] = math.nan
        return told

    monkeypatch.setattr(Learner, "rewards", poisoned)
    run = tmp_path / "run"
    assert main([*ARGV, "--run", str(run)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "error: the run is sick: iteration 1: " in said
    assert "of policy 'llm_2' is not finite on rows [" in said
    dump = run / "sick-000001.safetensors"
    assert str(dump) in said
    tensors = load_file(dump)
    assert {key.split(".")[0] for key in tensors} == {"pioneer_0", "observer_1"}
    assert tensors["observer_1.payoff_B"].shape == (16,)
    assert tensors["observer_1.response_BT"].shape[0] == 16


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("cannot have it"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_runs_out_names_sizes_and_the_settings_that_help(tmp_path, capsys, monkeypatch, error):
    def greedy(*rest, **more):
        raise error

    monkeypatch.setattr(Trainer, "update", greedy)
    assert main([*ARGV, "--run", str(tmp_path / "run")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    for part in (
        "iteration 0", "16 games", "up to 3 tokens", "8 ids", "learner.microbatches (now 1)",
        "policy.gradient_checkpointing", "policy.kind lora_team", "lower batch", str(error)[:40],
    ):  # fmt: skip
        assert part in said


@pytest.mark.usefixtures("no_page")
def test_any_other_fault_keeps_its_name(tmp_path, monkeypatch):
    def faulty(*rest, **more):
        raise RuntimeError("something else")

    monkeypatch.setattr(Trainer, "update", faulty)
    with pytest.raises(RuntimeError, match="something else"):
        main([*ARGV, "--run", str(tmp_path / "run")])
