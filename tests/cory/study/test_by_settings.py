"""A study from flags or keyword settings, and the file that repeats it."""

import pytest
import yaml

from cory.cli.main import main
from cory.study import Study
from cory.study.engines.local import LocalEngine
from cory.study.plan import make_plan

FLAGS = ("--task", "relay", "--policy.kind", "table", "--max-response", "1", "1", "--iterations", "2")
SETTINGS = {"task": "relay", "policy": {"kind": "table"}, "max_response": [1, 1], "iterations": 2}


@pytest.fixture
def planned_runs(monkeypatch, tmp_path):
    """The runs that a study would train, in a folder of its own."""
    runs: list = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalEngine, "train", lambda engine, todo: runs.extend(todo) or [])
    return runs


def test_study_of_flags_compares_each_algorithm_with_the_first(planned_runs, tmp_path, capsys):
    assert main(["study", *FLAGS, "--arms", "ppo,happo", "--seeds", "3", "--batch", "16"]) == 0
    assert [run.name for run in planned_runs] == [
        f"{a}/relay/seed-{i}" for i in range(3) for a in ("ppo", "happo")
    ]
    for run in planned_runs:
        assert (run.settings["algorithm"], run.settings["batch"]) == (run.arm, 16)
    text = capsys.readouterr().out
    assert "happo is better than ppo in combined_reward (relay)" in text
    assert "happo is better than ppo in game/collective_reward (relay)" in text


def test_study_of_flags_is_repeated_by_the_file_in_its_folder(planned_runs, tmp_path):
    main(["study", *FLAGS, "--arms", "ppo,happo", "--seeds", "2", "--evaluation.queries", "4"])
    first = list(planned_runs)
    planned_runs.clear()
    file = tmp_path / "runs/studies/relay-ppo-happo/study.yaml"
    assert main(["study", str(file)]) == 0
    assert planned_runs == first
    assert yaml.safe_load(file.read_text())["settings"]["task"] == "relay"
    assert main(["study", str(file), "--seeds", "3"]) == 0


@pytest.mark.slow
def test_file_of_a_study_of_flags_says_where_its_runs_are_and_outlives_a_refusal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = ("--evaluation.queries", "4", "--batch", "4", "--arms", "ppo,a2c", "--seeds", "1", "--jobs", "1")
    flags = ("study", *FLAGS, *shown, "--out", "mine")
    assert main([*flags, "--kl.coef", "0.1"]) == 0
    file = tmp_path / "mine/study.yaml"
    before = file.read_text()
    assert main([*flags, "--kl.coef", "0.5"]) == 2
    assert file.read_text() == before
    assert Study.from_yaml(file).run(train=False, say=str).results["statistics"][0]["n"] == 1
    assert not (tmp_path / "runs").exists()


def test_study_of_keyword_settings_is_that_of_flags(planned_runs):
    main(["study", *FLAGS, "--arms", "ppo,happo"])
    plan = make_plan(Study.from_settings(["ppo", "happo"], **SETTINGS).spec)
    assert list(plan.runs) == planned_runs
    assert {run.seed for run in plan.runs} == {0, 1, 2, 3, 4}


def test_own_algorithm_is_an_arm_by_its_file_or_with_a_name(planned_runs, tmp_path):
    (tmp_path / "mine.py").write_text("from cory.algorithms.ppo import *\n")
    main(["study", *FLAGS, "--arms", "ppo,mine.py,again=mine.py", "--seeds", "1"])
    assert {run.arm: run.settings["algorithm"] for run in planned_runs} == {
        "ppo": "ppo",
        "mine": "mine.py",
        "again": "mine.py",
    }


def test_single_seat_is_compared_by_combined_reward_alone():
    spec = Study.from_settings(["ppo", "rloo"], **SETTINGS, seats=1).spec
    assert [one.metric for one in spec.primary] == ["combined_reward"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the arms are none; name two algorithms or more"),
        (("--arms", "ppo"), "the arms are ppo; name two"),
        (("--arms", "ppo,ppo"), "the arms are ppo, ppo; name two"),
        (("--arms", "ppo,hapo"), "no algorithm called 'hapo'"),
        (("--arms", "ppo,happo", "--seed", "3"), "a study has `seeds` and `arms`"),
        (("--arms", "ppo,happo", "--iteration", "3"), "iterations"),
        (("x.yaml", "--iterations", "3"), "settings stand in x.yaml"),
    ],
)
def test_study_of_wrong_flags_is_refused_in_one_sentence(planned_runs, capsys, words, message):
    assert main(["study", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
