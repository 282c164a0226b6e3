"""The results file: reuse, learning versions."""

import json

import pytest

from cory.study import results, study
from cory.study.analysis import analyse
from cory.study.plan import make_plan
from cory.study.reading import make_spec
from tests.cory.study.conftest import made_up_run


@pytest.fixture
def spec(values):
    return make_spec(values)


@pytest.fixture
def plan(spec):
    return make_plan(spec)


@pytest.fixture
def clean(monkeypatch):
    """A tree without changes."""
    monkeypatch.setattr(results, "environment", lambda: ENVIRONMENT)


ENVIRONMENT = {
    "commit": "abc1234",
    "platform": "Linux",
    "processor": "a processor",
    "cpus": 2,
    "gpu": None,
    "python": "3.11",
    "versions": {"cory": "0"},
    "started": "2026-01-01",
}


def assembled(spec, plan, runs):
    return analyse(results.assemble(spec, plan, runs))


def test_stored_comparisons_without_a_key_that_came_later_are_those_of_the_study(spec, plan, clean, tmp_path):
    stored = assembled(spec, plan, [made_up_run("cooperative", 0, 0.5)])
    for comparison in stored["primary"]:
        del comparison["expected"]
    results.save(tmp_path / "results.json", analyse(stored))
    study.warn_of_changed_comparisons(spec, tmp_path / "results.json", pytest.fail)


def test_results_are_read_as_they_were_written(spec, plan, clean, tmp_path):
    runs = [made_up_run(arm, seed, 0.5) for arm in ("independent", "cooperative") for seed in (1, 0)]
    found = assembled(spec, plan, runs)
    results.save(tmp_path / "results.json", found)
    stored = results.load(tmp_path / "results.json")
    assert stored == json.loads(json.dumps(found))
    assert [(run["arm"], run["seed"]) for run in stored["runs"]] == [
        ("cooperative", 0),
        ("cooperative", 1),
        ("independent", 0),
        ("independent", 1),
    ]
    assert stored["schema"] == "cory-study/4"


@pytest.mark.parametrize("program", ["/usr/bin/cory", "/x/cory/cli/__main__.py"])
def test_results_hold_the_command(spec, plan, clean, monkeypatch, program):
    monkeypatch.setattr(results.sys, "argv", [program, "study", "a b.yaml"])
    assert results.assemble(spec, plan, [])["command"] == "cory study 'a b.yaml'"


@pytest.mark.parametrize("text", ["[1]", "{", '{"schema": "other"}'])
def test_files_that_are_no_results_are_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"x\.json"):
        results.load(tmp_path / "x.json")


def test_missing_file_is_none(tmp_path):
    assert results.load(tmp_path / "x.json") is None


@pytest.fixture
def saved(spec, plan, clean, tmp_path):
    """A results file of made-up runs."""

    def write(runs):
        path = tmp_path / "results.json"
        results.save(path, assembled(spec, plan, runs))
        return path

    return write


def test_runs_with_equal_settings_are_used_again_whatever_their_seed(values, plan, saved):
    path = saved([made_up_run(arm, seed, 0.5) for arm in ("cooperative", "independent") for seed in (0, 7)])
    assert sorted(results.stored_runs(path, plan, retrain=None)) == [
        "cooperative/relay/seed-0",
        "cooperative/relay/seed-7",
        "independent/relay/seed-0",
        "independent/relay/seed-7",
    ]
    changed = make_plan(make_spec(values | {"arms": values["arms"] | {"independent": {"batch": 16}}}))
    again = {f"independent/relay/seed-{seed}" for seed in (0, 7)}
    assert sorted(results.stored_runs(path, changed, retrain=again)) == [
        "cooperative/relay/seed-0",
        "cooperative/relay/seed-7",
    ]
    with pytest.raises(ValueError, match="independent on relay, seed 7"):  # it would be lost
        results.stored_runs(path, changed, retrain={"independent/relay/seed-0"})


def test_a_setting_that_is_new_since_does_not_repeat_runs(plan, saved):
    path = saved([made_up_run("cooperative", 1, 0.5)])
    stored = results.load(path)
    del stored["arms"]["cooperative"]["config"]["relay"]["keep_checkpoints"]
    results.save(path, stored)
    assert list(results.stored_runs(path, plan, retrain=None)) == ["cooperative/relay/seed-1"]


def test_runs_of_another_learning_version_are_not_used_again(plan, saved):
    path = saved([made_up_run("cooperative", 0, 0.5, learning_version=0)])
    assert results.stored_runs(path, plan, retrain={"cooperative/relay/seed-0"}) == {}
    with pytest.raises(ValueError, match=r"cooperative on relay, seed 0 \(learning version 0, now 1\)"):
        results.stored_runs(path, plan, retrain=None)


def test_runs_whose_settings_changed_are_named_before_they_would_be_lost(values, plan, saved, tmp_path):
    path = saved([made_up_run("independent", seed, 0.5) for seed in range(3)])
    assert len(results.stored_runs(path, plan, retrain=None)) == 3
    changed = make_plan(make_spec(values | {"arms": values["arms"] | {"independent": {"batch": 16}}}))
    message = r"independent on relay, seed 0 \(other settings: batch was 32 and is 16; payoff"
    with pytest.raises(ValueError, match=message):
        results.stored_runs(path, changed, retrain=None)
    assert results.stored_runs(tmp_path / "none.json", changed, retrain=None) == {}


def test_mixed_learning_versions_in_one_table_are_refused(spec, plan, clean):
    runs = [made_up_run("cooperative", 0, 0.5), made_up_run("independent", 0, 0.5, learning_version=2)]
    with pytest.raises(ValueError, match="learning versions 1, 2; one table holds one"):
        results.assemble(spec, plan, runs)
