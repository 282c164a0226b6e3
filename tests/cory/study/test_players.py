"""An arm of a study that is evaluated, not trained: players beside tables."""

from dataclasses import replace

import pytest
import yaml

from cory.study import Study, checks
from cory.study.checks import check_runs
from cory.study.engines.local import LocalEngine
from cory.study.plan import completed, make_plan
from cory.study.reading import make_spec
from tests.cory.study.conftest import SMOKE

FOREIGN = {"target": "tests.helpers.players:relay_favourite"}
"""Always the letter a: worth 1 to the pioneer for the secrets a and b, 0.8 for c and d."""


def with_players(values, tmp_path, **changes):
    arms = {"cooperative": values["arms"]["cooperative"], "foreign": FOREIGN}
    primary = [{"arm": "cooperative", "baseline": "foreign", "metric": "task_reward"}]
    return values | {"arms": arms, "primary": primary, "seeds": 1, "out": str(tmp_path / "out")} | changes


@pytest.mark.slow
def test_players_are_evaluated_on_the_queries_of_the_trained_arm(values, tmp_path, in_this_process):
    settings = values["settings"] | {"iterations": 2, "checkpoint_every": 0}
    study = Study(**with_players(values, tmp_path, settings=settings, evaluation={"queries": 4, "every": 1}))
    done = study.run(say=str)
    trained, foreign = done.results["runs"]
    # Four held-out queries, one for each secret; the same at every evaluation.
    assert foreign["eval"]["players"]["task_reward"] == [[i, pytest.approx(0.9)] for i in (0, 1, 2)]
    assert foreign["eval"]["reference"] == {
        quantity: [[i, points[0][1]] for i in (0, 1, 2)]
        for quantity, points in trained["eval"]["reference"].items()
    }
    assert {"kl", "combined_reward"}.isdisjoint(foreign["eval"]["players"])
    assert set(foreign["budget"].values()) == {0}
    assert foreign["game"] == {}
    (row,) = done.results["statistics"]
    assert (row["n"], row["baseline_mean"]) == (1, pytest.approx(0.9))
    (tmp_path / "out/results.json").unlink()
    again: list[str] = []
    study.run(say=again.append)
    assert again[0].startswith("study relay-smoke: 2 runs, 2 found, 0 to run;")


def test_players_make_another_run_than_the_same_settings_without(values, tmp_path):
    runs = make_plan(make_spec(with_players(values, tmp_path))).runs
    trained, foreign = runs
    assert foreign.settings == trained.settings | FOREIGN
    assert completed(foreign.settings) == dict(foreign.settings)


@pytest.mark.parametrize("metric", ["game/payoff", "survival", "survival_kl", "reward_at_kl/5"])
def test_metrics_of_training_are_refused_for_players(metric, values, tmp_path):
    primary = [{"arm": "cooperative", "baseline": "foreign", "metric": metric}]
    with pytest.raises(ValueError, match=f"by {metric}: arm 'foreign' on task 'relay' needs training"):
        make_plan(make_spec(with_players(values, tmp_path, primary=primary)))


@pytest.fixture(scope="module")
def foreign_run(tmp_path_factory):
    values = yaml.safe_load(SMOKE.read_text("utf-8"))
    return make_plan(make_spec(with_players(values, tmp_path_factory.mktemp("study")))).runs[1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "no method act"),
        ("outside", "played 8; it must play an id from 0 to 6"),
        ("not_a_number", "played nan"),
    ],
)
def test_bad_players_are_named(target, message, foreign_run):
    settings = foreign_run.settings | {"target": f"tests.helpers.players:{target}"}
    with pytest.raises(ValueError, match=message):
        check_runs([replace(foreign_run, settings=settings)])


def test_players_are_tried_before_the_first_run_and_once_per_task(values, tmp_path, monkeypatch):
    tried = []

    def refuse(target):
        tried.append(target.name)
        raise ValueError("refused")

    monkeypatch.setattr(checks, "check_target", refuse)
    monkeypatch.setattr(LocalEngine, "train", None)
    with pytest.raises(ValueError, match="refused"):
        Study(**with_players(values, tmp_path)).run(say=str)
    monkeypatch.setattr(checks, "check_target", lambda target: tried.append(target.name))
    runs = make_plan(make_spec(with_players(values, tmp_path, seeds=2))).runs
    check_runs(runs)
    assert tried == [FOREIGN["target"]] * 2  # refused, and once for both seeds
