"""Errors about names and paths that do not exist suggest the nearest that does."""

from pathlib import Path

import pytest

from cory import algorithms
from cory.config import presets
from cory.functional import kl
from cory.judges import parsing as judges
from cory.learner import central_critic
from cory.report import page
from cory.study.reading import make_spec, read_spec
from cory.training import factory, targets
from cory_env import nearest, payoff, registry, tasks
from cory_env.data import tables

NAMES = {
    "preset": (presets.find, "pockte-ppo", "pocket-ppo"),
    "task": (tasks.kind, "relai", "relay"),
    "task option": (lambda name: tasks.load("echo", **{name: 1}), "lenght", "length"),
    "algorithm": (algorithms.load, "reinforc", "reinforce"),
    "judge": (judges.parse, "pockte", "pocket"),
    "policy.kind": (factory.policy_class, "causl_lm", "causal_lm"),
    "payoff": (lambda name: payoff.matrix(name, 2), "cooprative", "cooperative"),
    "kl.kind": (kl.estimator, "ful", "full"),
    "critic.kind": (central_critic.critic_class, "centrla", "central"),
}
PATHS = {
    "run": (targets.find, "runs/pocket-2-seats-seed-0", "runs/pokcet-2-seats-seed-0"),
    "policy in a run": (targets.find, "runs/one/policies/pioneer", "runs/oone/policies/pioneer"),
    "run of a report": (lambda name: page.write_report(Path(name)), "runs/first-run", "runs/frist-run"),
    "study file": (lambda name: read_spec(Path(name)), "study.yaml", "sutdy.yaml"),
    "data file": (lambda name: tables.read_table(Path(name)), "openings.json", "openngs.json"),
    "file of a plug-in": (registry.module_of, "mine.py", "mien.py"),
}


@pytest.mark.parametrize(("call", "name", "right"), NAMES.values(), ids=NAMES)
def test_an_unknown_name_is_answered_with_the_nearest(call, name, right):
    with pytest.raises(ValueError, match=rf"did you mean '{right}'\?"):
        call(name)


@pytest.mark.parametrize(("call", "right", "name"), PATHS.values(), ids=PATHS)
def test_a_missing_path_is_answered_with_the_nearest(call, right, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / right).mkdir(parents=True)
    with pytest.raises((ValueError, ImportError), match=rf"did you mean \S*{right}\?"):
        call(name)


def test_nothing_is_suggested_for_what_exists_or_resembles_nothing(tmp_path):
    (tmp_path / "runs").mkdir()
    assert nearest.did_you_mean("zzz", ["pocket"]) == ""
    assert nearest.did_you_mean_path(tmp_path / "runs") == ""
    assert nearest.did_you_mean_path(tmp_path / "zzz" / "deep") == ""
    assert nearest.did_you_mean_path(tmp_path / "rusn" / "deep") == f"; did you mean {tmp_path / 'runs'}?"


def test_the_name_of_an_arm_begins_with_a_letter_or_digit():
    spec = {"name": "s", "question": "q"}
    with pytest.raises(ValueError, match="'-1' is no name of a folder; begin with a letter or digit"):
        make_spec(spec | {"arms": {"-1": {}}})
    assert list(make_spec(spec | {"arms": {"lambda=-1": {}}}).arms) == ["lambda=-1"]
