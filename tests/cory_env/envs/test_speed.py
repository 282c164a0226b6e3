"""The speed benchmark of the environments: its check and its report."""

import json
import sys

import pytest

from benchmarks.speed import env as env_speed

FAST_ENOUGH = {"tictactoe": 20e3, "aec_64": 50e3, "aec_50257": 50e3, "vector_64": 11e6}


@pytest.mark.parametrize(
    ("slower", "named"),
    [
        ({}, []),
        ({"aec_64": 19e3}, ["aec_64"]),
        ({"aec_50257": 19e3}, ["aec_50257"]),
        ({"vector_64": 9e6}, ["vector_64"]),
        ({"vector_64": 4e6}, ["vector_64", "vector_64 over aec_64"]),
        ({"aec_64": 120e3}, ["vector_64 over aec_64"]),
    ],
)
def test_rates_below_the_bounds_are_named(slower, named):
    assert [line.split(":")[0] for line in env_speed.shortfalls(FAST_ENOUGH | slower)] == named


def test_a_run_writes_its_figures_and_a_failed_check_exits_1(tmp_path, monkeypatch, capsys):
    file = tmp_path / "speed.json"
    arguments = ["env_speed.py", "--check", "--rounds", "1", "--seconds", "0.02", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(env_speed, "VECTOR_STEPS", 1e15)
    assert env_speed.main() == 1
    assert "too slow: vector_64" in capsys.readouterr().err
    report = json.loads(file.read_text())
    assert set(report["steps_per_second"]) == set(FAST_ENOUGH)
    assert report["command"].startswith("python env_speed.py --check")
