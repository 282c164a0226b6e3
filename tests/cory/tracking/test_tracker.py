"""Metrics and samples on disk and in TensorBoard."""

import json
import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cory.tracking import external
from cory.tracking.tracker import Curve, Key, Tracker, curves, read, read_lines


def test_a_line_is_on_disk_before_the_run_ends(tmp_path):
    tracker = Tracker(tmp_path)
    tracker.log(3, {"pioneer_0/llm_1/kl": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"iteration": 3, "pioneer_0/llm_1/kl": 0.5}
    tracker.close()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null_on_disk_and_nan_when_read(tmp_path, number):
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"eval/llm_1/kl": number, "eval/llm_1/length": 2})
    assert "null" in (tmp_path / "metrics.jsonl").read_text()
    (row,) = read(tmp_path)
    assert math.isnan(row["eval/llm_1/kl"])
    assert row["eval/llm_1/length"] == 2


def with_tensorboard(run) -> Tracker:
    return Tracker(run, external=external.start(["tensorboard"], run, {}, resumed=False, warn=pytest.fail))


def test_tensorboard_shows_the_same_numbers(tmp_path):
    with with_tensorboard(tmp_path) as tracker:
        tracker.log(0, {"pioneer_0/llm_1/kl": 0.25})
        tracker.log(1, {"pioneer_0/llm_1/kl": math.nan})
        tracker.log(2, {"pioneer_0/llm_1/kl": 0.75})
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("pioneer_0/llm_1/kl")] == [(0, 0.25), (2, 0.75)]


def test_samples_keep_their_text_and_lose_no_field(tmp_path):
    row = {"query": "Dies ist\n„gut“", "pioneer_0": "", "score": {"pioneer_0": math.nan, "observer_1": 1.5}}
    with Tracker(tmp_path) as tracker:
        tracker.samples(7, [row, row])
    got = read_lines(tmp_path / "samples.jsonl")
    assert got == [{**row, "iteration": 7, "score": {"pioneer_0": None, "observer_1": 1.5}}] * 2


def test_a_second_tracker_appends(tmp_path):
    for iteration in (0, 1):
        with Tracker(tmp_path) as tracker:
            tracker.log(iteration, {"a/b/c": iteration})
    assert [row["iteration"] for row in read(tmp_path)] == [0, 1]


def test_tensorboard_of_a_resumed_run_holds_every_line_once(tmp_path):
    """Of three iterations the last is dropped, as by a resume from the start of iteration 2."""
    with with_tensorboard(tmp_path) as tracker:
        for iteration in range(3):
            tracker.log(iteration, {"a/b/c": iteration})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:2]))
    with with_tensorboard(tmp_path) as tracker:
        tracker.log(2, {"a/b/c": 20})
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("a/b/c")] == [(0, 0), (1, 1), (2, 20)]


@pytest.mark.parametrize("name", ["kl", "pioneer_0/kl", "a/b/c/d", "a//c"])
def test_a_key_without_three_parts_is_refused(tmp_path, name):
    tracker = Tracker(tmp_path)
    with pytest.raises(ValueError, match="not of the form seat/policy/quantity"):
        tracker.log(0, {name: 1.0})
    tracker.close()
    assert read(tmp_path) == []


def test_a_last_line_cut_short_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "a/b/c": 1}\n{"iteration": 1, "a/b')
    assert read(tmp_path) == [{"iteration": 0, "a/b/c": 1}]


def test_a_tracker_continues_after_a_line_cut_short(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "a/b/c": 1}\n{"iteration": 1, "a/b')
    with Tracker(tmp_path) as tracker:
        tracker.log(1, {"a/b/c": 2})
    assert read(tmp_path) == [{"iteration": 0, "a/b/c": 1}, {"iteration": 1, "a/b/c": 2}]


def test_a_broken_line_elsewhere_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0\n{"iteration": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl line 1 is not JSON"):
        read(tmp_path)


def test_curves_sort_by_iteration_and_keep_the_later_of_two_lines():
    rows = [
        {"iteration": 1, "a/b/c": 10.0},
        {"iteration": 0, "a/b/c": 5.0, "a/b/d": 1.0},
        {"iteration": 1, "a/b/c": 20.0},
    ]
    assert curves(rows) == {
        Key("a", "b", "c"): Curve([0, 1], [5.0, 20.0]),
        Key("a", "b", "d"): Curve([0], [1.0]),
    }
