import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/env_speed.py"
SPEC = importlib.util.spec_from_file_location("env_speed", SCRIPT)
env_speed = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(env_speed)

KEPT = {"tictactoe": 20e3, "aec_64": 50e3, "aec_50257": 50e3, "vector_64": 11e6}


@pytest.mark.parametrize(
    ("worse", "named"),
    [
        ({}, []),
        ({"aec_64": 19e3}, ["aec_64"]),
        ({"aec_50257": 19e3}, ["aec_50257"]),
        ({"vector_64": 9e6}, ["vector_64"]),
        ({"vector_64": 4e6}, ["vector_64", "vector_64 over aec_64"]),
        ({"aec_64": 120e3}, ["vector_64 over aec_64"]),
    ],
)
def test_what_falls_short_is_named(worse, named):
    assert [line.split(":")[0] for line in env_speed.shortfalls(KEPT | worse)] == named


def test_a_run_writes_its_figures_and_a_failed_check_exits_1(tmp_path, monkeypatch, capsys):
    file = tmp_path / "speed.json"
    arguments = ["env_speed.py", "--check", "--rounds", "1", "--seconds", "0.02", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(env_speed, "VECTOR_STEPS", 1e15)
    assert env_speed.main() == 1
    assert "too slow: vector_64" in capsys.readouterr().err
    told = json.loads(file.read_text())
    assert set(told["steps_per_second"]) == set(KEPT)
    assert told["command"].startswith("python env_speed.py --check")
