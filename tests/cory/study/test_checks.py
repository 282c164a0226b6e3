"""What a study tries before its first run."""

import shutil

import pytest

from cory import pocket
from cory.study import checks
from cory.study.checks import check_runs
from cory.study.engines import evaluation
from cory.study.engines.local import LocalEngine
from cory.study.plan import graded, make_plan
from cory.study.study import Study

PROMPTS = {"task": "prompts", "judge": "cory.rewards:brevity"}


def planned(tmp_path, arms, **settings):
    return {
        "name": "checked",
        "question": "Is it reported before the first run?",
        "preset": "pocket",
        "settings": settings,
        "may_differ": ["judge", "task"],
        "arms": arms,
        "seeds": 2,
        "out": str(tmp_path / "out"),
    }


@pytest.mark.parametrize("name", ["report.md", "report.html", "plots/mine.png"])
def test_a_study_does_not_replace_what_a_user_has_in_its_folder(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    study = Study(**planned(tmp_path, {"a": {}}) | {"out": str(tmp_path)})
    with pytest.raises(ValueError, match=r"holds something else and is not replaced|is no study's"):
        study.run(say=str)
    assert (tmp_path / name).read_text() == "mine"


def test_a_player_is_not_evaluated_into_a_folder_of_a_user(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("mine")
    settings = {"target": "tests.helpers.players:relay_favourite", "task": "relay", "policy.kind": "table"}
    with pytest.raises(ValueError, match="is no study's; move it away"):
        evaluation.evaluate(tmp_path, settings)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f'{{"prompt": "Part {n} was"}}\n' for n in range(20)))
    return {**PROMPTS, "task.data": str(path)}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"policy.model": "./nowhere"}, "there is no model folder ..nowhere"),
        ({"policy.models": ["pocket", "./nowhere"]}, "there is no model folder ..nowhere"),
        ({"judge": "cory.rewards:no_such"}, "has no attribute 'no_such'"),
        ({"task.data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"policy.kind": "no_such_package:Policy"}, "No module named 'no_such_package'"),
    ],
)
def test_arm_whose_parts_are_missing_is_reported_before_the_first_run(
    broken, message, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(LocalEngine, "train", None)
    study = Study(**planned(tmp_path, {"good": {}, "broken": broken}, **data))
    with pytest.raises(ValueError, match=f"arm 'broken' on task 'prompts' cannot be run: .*{message}"):
        study.run(say=str)


def test_no_weights_are_read_and_nothing_is_tried_twice(data, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(pocket.LM, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    made = []
    make_task = checks.make_task
    monkeypatch.setattr(checks, "make_task", lambda *parts: made.append(parts) or make_task(*parts))
    arms = {
        "two-seats": {},
        "one-seat": {"seats": 1, "exchange.every": 0},
    }
    study = Study(**planned(tmp_path, arms, **data, **{"policy.model": str(folder)}))
    check_runs(make_plan(study.spec).runs)
    assert len(made) == 1


def test_a_folder_that_cannot_be_written_to_is_reported_before_the_first_run(data, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalEngine, "train", None)
    (tmp_path / "file").write_text("")
    values = planned(tmp_path, {"good": {}}, **data) | {"out": str(tmp_path / "file/out")}
    with pytest.raises(ValueError, match=r"file/out cannot be written to .*; give another folder"):
        Study(**values).run(say=str)


def test_a_policy_class_of_the_user_is_imported(data, tmp_path):
    arms = {"own": {"policy.kind": "tests.cory.study.test_checks:Own"}}
    check_runs(make_plan(Study(**planned(tmp_path, arms, **data)).spec).runs)


def test_shares_of_right_answers_need_something_that_tells_them(data, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalEngine, "train", None)
    values = planned(tmp_path, {"a": {}, "b": {"batch": 64}}, **data)
    for metric in ("accuracy", "team/pioneer_0/pass_at_2"):
        values["primary"] = [{"arm": "a", "baseline": "b", "metric": metric}]
        values["evaluation"] = {"team": True, "samples": 2}
        with pytest.raises(ValueError, match=r"arm 'a' on task 'prompts' .* give evaluation\.threshold"):
            Study(**values).run(say=str)
    values["evaluation"] |= {"threshold": 0.5}
    spec = Study(**values).spec
    check_runs(make_plan(spec).runs, graded(spec, ["prompts"]))


class Own:
    """A policy that knows its own tokens."""

    @classmethod
    def load(cls, name, path, *, device, **options):
        raise AssertionError("a policy was loaded")
