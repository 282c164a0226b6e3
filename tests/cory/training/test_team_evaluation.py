"""Held-out games of the team: logged on request, the same games whoever learns, and plotted."""

import numpy as np
import pytest

import cory
from cory.config.schema import Config
from cory.evaluation.evaluator import Responses
from cory.report import plots
from cory.tracking.curves import Curves
from cory.tracking.tracker import Curve, Key, read
from cory.training import checkpoint
from cory.training.evaluate import target_metrics
from cory.training.held_out import HeldOut
from cory.training.metrics import team_metrics
from cory.training.targets import find, load_external
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged
from tests.helpers.tasks import OddGames


def responses(scores: list[list[float]], kl: float) -> Responses:
    rewards_QS = np.array(scores)
    others = dict.fromkeys(("length", "reference_nats"), np.ones_like(rewards_QS))
    arrays = {"task_reward": rewards_QS, "kl": np.full_like(rewards_QS, kl), **others}
    texts = [["a"] * rewards_QS.shape[1]] * len(scores)
    return Responses(queries=["q"] * len(scores), texts=texts, ids=[], arrays=arrays, threshold=1.0)


def test_collective_and_best_reward_by_hand():
    """Two queries x two samples: sums 1, 1, 2, 0 and best scores 1, 1, 1, 0."""
    team = {
        "pioneer_0": responses([[1.0, 0.0], [1.0, 0.0]], kl=2.0),
        "observer_1": responses([[0.0, 1.0], [1.0, 0.0]], kl=4.0),
    }
    found = team_metrics(team, kl_coef=0.1)
    assert found["team/all/collective_reward"] == 1.0
    assert found["team/all/best_reward"] == 0.75
    assert found["team/all/combined_reward"] == pytest.approx(1.0 - 0.1 * (2 + 4))
    assert found["team/observer_1/task_reward"] == 0.5
    assert found["team/pioneer_0/pass_at_2"] == 1.0


def test_games_are_those_of_the_seating_and_change_nothing():
    config = flagged("--exchange.every", "1", "--evaluation.queries", "8")
    trainer, other = Trainer(config), Trainer(config)
    first = HeldOut(trainer).play_as_team(0)
    assert set(first) == {"pioneer_0", "observer_1"}
    trainer.iterate(0), other.iterate(0)
    metrics = [t.iterate(1) for t in (trainer, other)]
    scores = [{k: v for k, v in found.items() if k.endswith("task_reward")} for found in metrics]
    assert scores[0] == scores[1]


def test_the_page_draws_the_team(tmp_path):
    curves: Curves = {
        Key("pioneer_0", "llm_1", "task_reward"): Curve([0], [0.0]),
        Key("observer_1", "llm_2", "task_reward"): Curve([0], [0.0]),
        Key("team", "observer_1", "task_reward"): Curve([0, 5], [0.1, 0.5]),
        Key("team", "all", "collective_reward"): Curve([0, 5], [0.2, 0.9]),
    }
    drawn = {plot.path.stem: plot.caption for plot in plots.draw(curves, tmp_path)}
    assert "sum of the scores" in drawn["team"]


@pytest.mark.slow
def test_games_of_a_finished_run_are_paid_as_its_last_evaluation_was(tmp_path):
    """From the sum to own scores over 2 iterations: after 4 both seats are paid their own."""
    payoff = {"payoff": "cooperative", "payoff_options": {"to": "independent", "over": 2}}
    table = {"task": "echo", "policy": {"kind": "table"}, "max_response": (3, 3), "batch": 8, "quiet": True}
    evaluation = {"every": 4, "queries": 8, "team": True}
    run = cory.train(
        run=tmp_path / "run",
        iterations=4,
        checkpoint_every=1,
        keep_checkpoints=9,
        evaluation=evaluation,
        **table,
        **payoff,
    )
    found = target_metrics(find(str(run.path)))
    last = run.metrics.iloc[-1]
    assert found["team/observer_1/payoff"] == found["team/observer_1/task_reward"] > 0
    assert found["team/observer_1/payoff"] == last["team/observer_1/payoff"]
    env = run.env()
    assert env.unwrapped.pay(np.array([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]
    start = target_metrics(find(str(run.path / "checkpoints/step-000000")))
    assert start["team/observer_1/payoff"] == run.metrics.loc[0]["team/observer_1/payoff"]
    first = target_metrics(find(str(run.path / "checkpoints/step-000001")))
    total = first["team/pioneer_0/task_reward"] + first["team/observer_1/task_reward"]
    halfway = (first["team/observer_1/task_reward"] + total) / 2
    assert first["team/observer_1/payoff"] == pytest.approx(halfway)


@pytest.mark.slow
def test_the_best_checkpoint_plays_in_the_seats_that_it_had(tmp_path):
    settings = {
        **{"task": "echo", "policy.kind": "table", "learner.lr": 0.1, "batch": 16, "iterations": 3},
        **{"exchange.every": 1, "checkpoint_every": 1, "keep_checkpoints": 9},
        **{"evaluation.every": 1, "evaluation.team": True, "evaluation.queries": 16},
    }
    run = cory.train(run=tmp_path / "run", quiet=True, **settings)
    checkpoint.write_best(run.path, 2, 9.0)
    cory.train(run=run.path, quiet=True, resume="must", export_best=True)
    evaluated = [row for row in read(run.path) if "time/evaluate/seconds" in row]
    (row,) = (row for row in evaluated if row["iteration"] == 2)
    again = target_metrics(find(str(run.path)))
    assert again["team/pioneer_0/kl"] == row["team/pioneer_0/kl"] > 0
    assert again["team/observer_1/kl"] == row["team/observer_1/kl"] > 0


@pytest.mark.parametrize("load", ["copy", "two"])
def test_players_of_a_study_are_evaluated_as_a_team(load):
    """Both of `copy` repeat the query's three letters and score 1; `two` has one such, in the first seat."""
    settings = {"task": "echo", "policy.kind": "table", "max_response": (3, 3), "evaluation.team": True}
    config = Config.from_flat(settings | {"evaluation.queries": 8})
    found = target_metrics(load_external(f"tests.helpers.players:{load}", config))
    assert found["team/pioneer_0/task_reward"] == 1.0
    assert (found["team/observer_1/task_reward"] == 1.0) == (load == "copy")


def test_a_measure_by_the_name_of_another_quantity_is_refused(monkeypatch):
    class Takes(OddGames):
        def measure_games(self, queries, responses):
            return {"observer_1": {"length": [1.0] * len(queries)}}

    trainer = Trainer(flagged("--evaluation.queries", "8"), task=Takes())
    with pytest.raises(ValueError, match="reports 'length', which is a quantity of every run"):
        HeldOut(trainer).play_as_team(0)


@pytest.mark.parametrize("flags", [(), ("--players.observer_1", "frozen")])
def test_a_measure_by_the_name_of_a_quantity_of_training_is_refused(flags):
    class Takes(OddGames):
        def measure_games(self, queries, responses):
            return {"observer_1": {"payoff": [1.0] * len(queries)}}

    with pytest.raises(ValueError, match=r"reports 'observer_1/.*/payoff', which is a quantity"):
        Trainer(flagged("--batch", "4", *flags), task=Takes()).iterate(0)
