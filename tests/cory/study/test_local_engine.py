"""Where the local engine puts the runs of a study: on accelerators, or cores."""

import json
import os
from types import SimpleNamespace

import pytest
import torch

from cory.runtime import memory
from cory.study.engines import local
from cory.study.plan import PlannedRun


def run_of(seed: int, device: str = "auto") -> PlannedRun:
    return PlannedRun(arm="a", task="t", seed=seed, settings={"policy.device": device, "iterations": 1})


@pytest.fixture
def started(monkeypatch):
    """The arguments of the processes that an engine starts on a machine with two accelerators."""
    made = []

    class Process(SimpleNamespace):
        __hash__ = object.__hash__
        exitcode = 0

        def start(self):
            made.append(self.args)

        def join(self):
            pass

    monkeypatch.setattr(local, "CONTEXT", SimpleNamespace(Pipe=local.CONTEXT.Pipe, Process=Process))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    return made


def engine(tmp_path, jobs=None) -> local.LocalEngine:
    return local.LocalEngine(tmp_path, jobs=jobs, say=print)


def test_each_accelerator_has_one_run_unless_the_settings_name_the_cpu(tmp_path, started):
    assert engine(tmp_path).places([run_of(0, "cpu"), run_of(1)]) == 2
    assert engine(tmp_path).places([run_of(0, "cpu")]) == os.cpu_count()
    engine(tmp_path).start(run_of(0, "cpu"))
    assert started[0][-2:] == (None, 1)


def test_without_accelerators_each_core_has_a_run(tmp_path, started, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    assert engine(tmp_path).places([run_of(0)]) == os.cpu_count()
    engine(tmp_path).start(run_of(0))
    assert started[0][-2:] == (None, 1)


def test_nothing_to_train_ends_at_once(tmp_path, started):
    assert engine(tmp_path).train([]) == []
    assert not started


def test_time_left_counts_the_iterations_of_each_task_at_their_own_cost(tmp_path):
    settings = {"policy.device": "cpu", "iterations": 10}
    short, long, new = runs = [PlannedRun(arm="a", task=task, seed=0, settings=settings) for task in "slu"]
    trainer = engine(tmp_path)
    assert trainer._left(runs, runs, 0.0, 5.0) is None
    for run, done, cost in ((short, 10, 1.0), (long, 4, 6.0)):
        (tmp_path / run.name).mkdir(parents=True)
        rows = [{"iteration": i, "time/update/seconds": cost, "speed/tokens": 9.0} for i in range(done)]
        (tmp_path / run.name / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    usual = (10 * 1.0 + 4 * 6.0) / 14
    # 34 seconds of runs, 14 of them before, in 10 seconds: two at a time
    assert trainer._left(runs, [long, new], 14.0, 10.0) == pytest.approx((6 * 6.0 + 10 * usual) / 2)


def test_a_run_starts_on_the_accelerator_with_the_fewest_runs(tmp_path, started):
    four = engine(tmp_path, jobs=4)
    running = [four.start(run_of(seed)) for seed in range(4)]
    assert [args[-2:] for args in started] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert four.error(running[1]) == "its process ended with code 0"
    four.start(run_of(4))
    assert started[-1][-2:] == (1, 2)


def test_runs_on_one_accelerator_share_its_memory(monkeypatch):
    """1,000 bytes are free: half of them rounded down is 256, half of a third of them 128."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    device = torch.device("meta")
    memory._share_of_accelerator.cache_clear()
    assert memory.pass_bytes("auto", device) == 256
    for runs, share in ((3, 128), (1, 256)):
        memory._share_of_accelerator.cache_clear()
        memory.share_accelerator(runs)
        assert memory.pass_bytes("auto", device) == share
    memory._share_of_accelerator.cache_clear()
