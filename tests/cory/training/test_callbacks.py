"""Callbacks of a run: which hooks are called, when, and with what."""

import os
import signal
from dataclasses import replace

import pytest

from cory.rollout.role_exchange import ExchangeConfig
from cory.runtime.signals import Stopped
from cory.tracking.tracker import read
from cory.training import checkpoint
from cory.training.run import train
from cory.training.targets import find
from cory.training.trainer import Trainer
from tests.helpers.runs import without_report
from tests.helpers.tables import TABLES

CONFIG = replace(
    TABLES,
    batch=8,
    iterations=4,
    checkpoint_every=2,
    exchange=ExchangeConfig(every=2),
    evaluation=replace(TABLES.evaluation, queries=4, every=2),
)


class Recorder:
    """Has every hook; records hook, iteration and argument, and checks what holds at each call."""

    def __init__(self) -> None:
        self.trainers: set[Trainer] = set()
        self.calls: list[tuple[str, int]] = []
        self.metrics: dict[tuple[str, int], dict[str, float]] = {}
        self.seatings: list[dict[str, str]] = []

    def _record(self, hook: str, trainer: Trainer, iteration: int) -> None:
        self.trainers.add(trainer)
        if self.calls[-1:] != [(hook, iteration)]:  # the best checkpoint may be saved when one is due anyway
            self.calls.append((hook, iteration))

    def on_iteration(self, trainer, iteration, metrics):
        self._record("on_iteration", trainer, iteration)
        self.metrics["training", iteration] = dict(metrics)

    def on_evaluate(self, trainer, iteration, metrics):
        self._record("on_evaluate", trainer, iteration)
        self.metrics["evaluation", iteration] = dict(metrics)

    def on_exchange(self, trainer, iteration, seating):
        self._record("on_exchange", trainer, iteration)
        assert seating == trainer.seating(iteration)
        self.seatings.append(dict(seating))

    def on_save(self, trainer, iteration, folder):
        self._record("on_save", trainer, iteration)
        assert folder.name == f"step-{iteration:06d}"
        checkpoint.verify(folder)


class OnlySaves:
    """Lacks all other hooks."""

    def __init__(self) -> None:
        self.iterations: list[int] = []

    def on_save(self, trainer, iteration, folder):
        self.iterations.append(iteration)


@pytest.fixture
def run(tmp_path, monkeypatch):
    without_report(monkeypatch)
    return tmp_path / "run"


def test_every_hook_is_called_in_its_place(run):
    recorder, trainer = Recorder(), Trainer(CONFIG)
    train(CONFIG, run, make_trainer=lambda _: trainer, callbacks=[recorder])
    assert recorder.trainers == {trainer}
    saves = [call for call in recorder.calls if call[0] == "on_save"]
    assert {iteration for _, iteration in saves} == {0, 2, 4}
    assert [call for call in recorder.calls if call[0] != "on_save"] == [
        ("on_evaluate", 0),
        ("on_iteration", 0),
        ("on_iteration", 1),
        ("on_evaluate", 2),
        ("on_exchange", 2),
        ("on_iteration", 2),
        ("on_iteration", 3),
        ("on_evaluate", 4),
    ]
    # the state at the start of an iteration is saved before it is evaluated and played
    for iteration in (0, 2, 4):
        assert recorder.calls.index(("on_save", iteration)) < recorder.calls.index(("on_evaluate", iteration))
    assert recorder.seatings == [{"pioneer_0": "llm_2", "observer_1": "llm_1"}]


def test_hooks_get_the_metrics_that_are_logged(run):
    recorder = Recorder()
    train(CONFIG, run, callbacks=[recorder])
    logged = {
        ("training" if "time/update/seconds" in row else "evaluation", row.pop("iteration")): row
        for row in map(dict, read(run))
    }
    assert recorder.metrics.keys() == logged.keys()
    for key, row in logged.items():
        assert recorder.metrics[key] == pytest.approx(row, nan_ok=True)
    assert "pioneer_0/llm_1/task_reward" in recorder.metrics["training", 0]
    assert "eval/llm_2/task_reward" in recorder.metrics["evaluation", 4]


def test_missing_hooks_are_ignored_and_callbacks_are_called_in_their_order(run):
    first, second, order = OnlySaves(), OnlySaves(), []

    class Named:
        def __init__(self, name):
            self.name = name

        def on_iteration(self, trainer, iteration, metrics):
            order.append((iteration, self.name))

    train(CONFIG, run, callbacks=[object(), first, Named("a"), Named("b"), second])
    assert set(first.iterations) == set(second.iterations) == {0, 2, 4}
    assert order == [(iteration, name) for iteration in range(4) for name in "ab"]


def test_a_resumed_run_calls_the_hooks_of_its_own_iterations(run):
    train(replace(CONFIG, iterations=2), run)
    recorder = Recorder()
    train(CONFIG, run, resume="must", callbacks=[recorder])
    iterations = [iteration for hook, iteration in recorder.calls if hook == "on_iteration"]
    assert iterations == [2, 3]
    assert recorder.calls.count(("on_exchange", 2)) == 1


def test_one_policy_is_never_exchanged(run):
    recorder = Recorder()
    train(replace(CONFIG, seats=1, exchange=ExchangeConfig(every=2, reset=True)), run, callbacks=[recorder])
    assert not recorder.seatings


@pytest.mark.parametrize("turns", [(), ("llm_1", "llm_1")])
def test_one_policy_is_reset_where_policies_would_be_exchanged(turns):
    """Two steps an iteration, and a reset before iterations 2 and 4: Adam has counted 2, 4, 2, 4, 2."""
    exchange = ExchangeConfig(every=2, reset=True)
    trainer = Trainer(replace(CONFIG, seats=len(turns) or 1, turns=turns, iterations=5, exchange=exchange))
    learner, counted = trainer.learners["llm_1"], []
    for iteration in range(5):
        trainer.iterate(iteration)
        counted.append(max(int(state["step"]) for state in learner.optimizer.state.values()))
    assert counted == [steps * counted[0] for steps in (1, 2, 1, 2, 1)]


def test_an_error_after_an_update_leaves_the_last_whole_checkpoint(run):
    class Wrong:
        def on_iteration(self, trainer, iteration, metrics):
            if iteration == 3:
                raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        train(CONFIG, run, callbacks=[Wrong()])
    assert [folder.name for folder in checkpoint.finished(run)] == ["step-000000", "step-000002"]


def test_a_run_is_evaluated_on_what_it_exported_and_else_on_its_newest_checkpoint(run):
    """Stopped and finished without checkpoints; then gone on with, and killed in the last evaluation."""
    short = replace(CONFIG, iterations=3, checkpoint_every=0)

    class Ends:
        def __init__(self, number):
            self.number = number

        def on_iteration(self, trainer, iteration, metrics):
            if iteration == 1 and self.number:
                os.kill(os.getpid(), self.number)

        def on_evaluate(self, trainer, iteration, metrics):
            if iteration == 5:
                raise KeyboardInterrupt

    with pytest.raises(Stopped):
        train(short, run, callbacks=[Ends(signal.SIGTERM)])
    train(short, run, resume="must")
    assert find(str(run)).folders["llm_1"] == str(run / "policies" / "llm_1")
    with pytest.raises(KeyboardInterrupt):
        train(replace(short, iterations=5, checkpoint_every=1), run, resume="must", callbacks=[Ends(0)])
    assert find(str(run)).folders["llm_1"] == str(run / "checkpoints" / "step-000005" / "llm_1")


def test_an_error_in_a_callback_ends_the_run_as_it_is(run):
    class Failing:
        def on_iteration(self, trainer, iteration, metrics):
            raise KeyError("my own fault")

    with pytest.raises(KeyError, match="my own fault"):
        train(CONFIG, run, callbacks=[Failing()])


class Misspelt:
    def on_iterations(self, trainer, iteration, metrics):
        raise AssertionError


class OldSignature:
    def on_save(self, folder):
        raise AssertionError


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([OldSignature()], r"on_save of a callback cannot be called with \(trainer, iteration, folder\)"),
        ([Misspelt()], r"'on_iterations', which is never called; did you mean 'on_iteration'"),
        ([Recorder], "is a class; give an object of it"),
        ([lambda *given: None], "is a function and is never called; give an object with any of the methods"),
        (Recorder(), "give a list of objects"),
    ],
)
def test_what_cannot_be_called_is_refused_before_the_run(callbacks, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(CONFIG, tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()
