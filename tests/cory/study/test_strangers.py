"""Teams of one seed's pioneer and the observers of the others, in a study."""

import shutil
from statistics import fmean

import pytest

import cory
from cory.study.study import Study

PRIMARY = [
    {"arm": "fixed", "baseline": "fixed", "metric": "team/best_reward"}
    | {"baseline_metric": "team/strangers/best_reward"},
    {"arm": "exchanging", "baseline": "fixed", "metric": "team/gap/collective_reward", "direction": "lower"},
]


@pytest.fixture
def meeting(values, tmp_path, in_this_process) -> dict:
    """A study of two arms with three seeds, one of which meets strangers."""
    return values | {
        "arms": {"fixed": {"exchange.every": 0}, "exchanging": {"exchange.every": 1}},
        "settings": values["settings"] | {"iterations": 5, "checkpoint_every": 0},
        "evaluation": values.get("evaluation", {}) | {"team": True},
        "strangers": ["fixed", "exchanging"],
        "seeds": 3,
        "primary": PRIMARY,
        "sweeps": {},
        "results": None,
        "out": str(tmp_path / "study"),
    }


@pytest.mark.slow
def test_scores_with_strangers_are_those_of_cross_play(meeting, tmp_path):
    """An order of one's own, that never moves a policy, seats the strangers too."""
    (tmp_path / "staying.py").write_text(
        "def order(iteration, seats, policies):\n    return dict(zip(seats, policies))\n"
    )
    meeting["arms"]["staying"] = {"exchange.every": 1, "exchange.order": f"{tmp_path}/staying.py:order"}
    meeting["strangers"] = [*meeting["strangers"], "staying"]
    finished = Study(**meeting).run(say=str)
    assert finished.failed == []
    seated = dict.fromkeys(("fixed", "staying"), ("llm_1", "llm_2"))
    seated["exchanging"] = ("llm_2", "llm_1")  # after five exchanges
    cross = {}
    for arm in seated:
        folder = finished.page.parent / f"{arm}/relay"
        played = cory.cross_play(*(folder / f"seed-{seed}" for seed in range(3)))
        cross[arm] = {
            (pair["pioneer"], pair["observer"]): pair["scores"]["sum of the scores"]["value"]
            for pair in played["pairs"]
        }
    for run in finished.results["runs"]:
        seed, sums, (first, second) = run["seed"], cross[run["arm"]], seated[run["arm"]]
        met = [sums[f"seed-{seed}:{first}", f"seed-{other}:{second}"] for other in range(3) if other != seed]
        (point,) = run["team"]["strangers"]["collective_reward"]
        assert point == [5, pytest.approx(fmean(met))]
        (gap,) = run["team"]["gap"]["collective_reward"]
        assert gap[1] == pytest.approx(sums[f"seed-{seed}:{first}", f"seed-{seed}:{second}"] - fmean(met))
    partners, gap = finished.results["statistics"]
    assert partners["difference"] == pytest.approx(partners["arm_mean"] - partners["baseline_mean"])
    assert (partners["n"], gap["n"]) == (3, 3)


@pytest.mark.slow
def test_games_with_strangers_wait_for_the_last_seed_and_are_played_once(meeting, monkeypatch):
    first = Study(**meeting | {"seeds": 1}).run(say=str)
    assert [set(run["team"]) & {"strangers", "gap"} for run in first.results["runs"]] == [set(), set()]
    whole = Study(**meeting).run(say=str)
    assert all({"strangers", "gap"} <= set(run["team"]) for run in whole.results["runs"])

    def refuse(*_args, **_options):
        raise AssertionError("played again")

    monkeypatch.setattr("cory.study.engines.evaluation.team_with_observers_of", refuse)
    again = Study(**meeting).run(say=str)
    assert again.results["runs"] == whole.results["runs"]
    fewer = Study(**meeting).run(say=str, seeds=2).results["runs"]
    assert [run["team"] for run in fewer] == [run["team"] for run in whole.results["runs"]]
    shutil.rmtree(again.page.parent / "fixed")
    lines: list[str] = []
    assert Study(**meeting).run(say=lines.append).results["runs"] == whole.results["runs"]
    assert lines[0].startswith("study relay-smoke: 6 runs, 6 found, 0 to run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strangers": ["fixd"]}, "no arm 'fixd'; did you mean 'fixed'"),
        ({"strangers": ["exchanging"]}, "'fixed' on task 'relay' needs 'fixed' in `strangers`"),
        (
            {"evaluation": {"team": False}, "primary": []},
            "needs training, two seats or more, evaluation.team",
        ),
        (
            {"settings": {"export_best": True, "checkpoint_every": 1}},
            r"last iteration \(no export_best\)",
        ),
        (
            {"primary": [{"arm": "fixed", "baseline": "exchanging", "metric": "team/gap/accuracy"}]},
            "no metric 'team/gap/accuracy'",
        ),
    ],
)
def test_meetings_that_cannot_be_are_refused(meeting, changes, message):
    with pytest.raises(ValueError, match=message):
        Study(**meeting | changes).run(say=str)


@pytest.mark.slow
def test_runs_that_met_no_strangers_and_whose_directories_are_gone_are_trained_again_if_asked(meeting):
    alone = Study(**meeting | {"strangers": [], "primary": [], "seeds": 2}).run(say=str)
    shutil.rmtree(alone.page.parent / "fixed")
    shutil.rmtree(alone.page.parent / "exchanging")
    kept = Study(**meeting | {"seeds": 2}).run(say=str)
    assert kept.results["runs"] == alone.results["runs"]
    again = Study(**meeting | {"seeds": 2}).run(say=str, retrain=True)
    assert all("strangers" in run["team"] for run in again.results["runs"])
