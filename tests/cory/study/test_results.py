"""The results file: hash, reuse, learning versions, uncommitted code."""

import json

import pytest

from cory.study import results
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


def test_results_are_read_as_they_were_written(spec, plan, clean, tmp_path):
    runs = [made_up_run(arm, seed, 0.5) for arm in ("independent", "cooperative") for seed in (1, 0)]
    found = assembled(spec, plan, runs)
    results.save(tmp_path / "results.json", found)
    stored = results.load(tmp_path / "results.json")
    assert {key: value for key, value in stored.items() if key != "sha256"} == json.loads(json.dumps(found))
    assert [(run["arm"], run["seed"]) for run in stored["runs"]] == [
        ("cooperative", 0),
        ("cooperative", 1),
        ("independent", 0),
        ("independent", 1),
    ]
    assert stored["schema"] == "cory-study/4"
    assert stored["dirty"] is False


@pytest.mark.parametrize("program", ["/usr/bin/cory", "/x/cory/cli/__main__.py"])
def test_results_hold_the_command(spec, plan, clean, monkeypatch, program):
    monkeypatch.setattr(results.sys, "argv", [program, "study", "a b.yaml"])
    assert results.assemble(spec, plan, [])["command"] == "cory study 'a b.yaml'"


def test_results_changed_by_hand_are_refused(spec, plan, clean, tmp_path):
    path = tmp_path / "results.json"
    results.save(path, assembled(spec, plan, [made_up_run("cooperative", 0, 0.5)]))
    path.write_text(path.read_text().replace("[20, 0.6]", "[20, 0.9]"))
    with pytest.raises(ValueError, match="was changed after it was written"):
        results.load(path)


@pytest.mark.parametrize("text", ["[1]", "{", '{"schema": "other"}'])
def test_files_that_are_no_results_are_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"x\.json"):
        results.load(tmp_path / "x.json")


def test_missing_file_is_none(tmp_path):
    assert results.load(tmp_path / "x.json") is None


def test_runs_with_equal_settings_are_used_again_whatever_their_seed(values, spec, plan, clean):
    runs = [made_up_run(arm, seed, 0.5) for arm in ("cooperative", "independent") for seed in (0, 7)]
    stored = assembled(spec, plan, runs)
    assert sorted(results.reusable(stored, plan)) == [
        "cooperative/relay/seed-0",
        "cooperative/relay/seed-7",
        "independent/relay/seed-0",
        "independent/relay/seed-7",
    ]
    changed = make_plan(make_spec(values | {"arms": values["arms"] | {"independent": {"batch": 16}}}))
    assert sorted(results.reusable(stored, changed)) == [
        "cooperative/relay/seed-0",
        "cooperative/relay/seed-7",
    ]


def test_a_setting_that_is_new_since_does_not_repeat_runs(spec, plan, clean):
    stored = assembled(spec, plan, [made_up_run("cooperative", 1, 0.5)])
    del stored["arms"]["cooperative"]["config"]["relay"]["checkpoint_minutes"]
    assert list(results.reusable(stored, plan)) == ["cooperative/relay/seed-1"]


def test_runs_of_another_learning_version_are_not_used_again(spec, plan, clean, tmp_path):
    stored = assembled(spec, plan, [made_up_run("cooperative", 0, 0.5)]) | {"learning_version": 0}
    assert results.reusable(stored, plan) == {}
    results.save(tmp_path / "x.json", stored)
    with pytest.raises(ValueError, match=r"cooperative on relay \(1 runs; learning version 0, now 1\)"):
        results.check_keeps(tmp_path / "x.json", plan)


def test_runs_whose_settings_changed_are_named_before_they_would_be_lost(values, spec, plan, clean, tmp_path):
    path, runs = tmp_path / "x.json", [made_up_run("independent", seed, 0.5) for seed in range(3)]
    results.save(path, assembled(spec, plan, runs))
    results.check_keeps(path, plan)
    changed = make_plan(make_spec(values | {"arms": values["arms"] | {"independent": {"batch": 16}}}))
    with pytest.raises(ValueError, match=r"independent on relay \(3 runs; batch was 32 and is 16; payoff"):
        results.check_keeps(path, changed)
    results.check_keeps(tmp_path / "none.json", changed)


def test_files_beside_the_results_that_hold_none_are_passed_over_with_a_warning(spec, plan, clean, tmp_path):
    run = made_up_run("cooperative", 0, 0.5) | {"settings_sha256": plan.runs[0].sha256}
    results.save(tmp_path / "other.json", assembled(spec, plan, [run]))
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "conflict.json").write_text("<<<<<<<")
    lines: list[str] = []
    found = results.shared(tmp_path / "mine.json", plan, lines.append)
    assert list(found) == [plan.runs[0].name]
    assert [line.split(" ")[:2] for line in lines] == [
        ["warning:", "the"],  # results file .../conflict.json cannot be read
        ["warning:", f"{tmp_path / 'notes.json'}"],
    ]


def test_mixed_learning_versions_in_one_table_are_refused(spec, plan, clean):
    runs = [made_up_run("cooperative", 0, 0.5), made_up_run("independent", 0, 0.5, learning_version=2)]
    with pytest.raises(ValueError, match="learning versions 1, 2; one table holds one"):
        results.assemble(spec, plan, runs)


def test_uncommitted_code_is_marked_and_kept_out_of_committed_files(spec, plan, clean, tmp_path):
    run = made_up_run("cooperative", 0, 0.5, commit="abc-dirty")
    assert results.assemble(spec, plan, [run])["dirty"] is True
    with pytest.raises(ValueError, match="cooperative/relay/seed-0 began with uncommitted changes"):
        results.check_clean(tmp_path / "x.json", "abc", [run])
    with pytest.raises(ValueError, match="this tree has changes"):
        results.check_clean(tmp_path / "x.json", "abc-dirty", [])
    results.check_clean(tmp_path / "x.json", "abc", [made_up_run("cooperative", 0, 0.5)])
