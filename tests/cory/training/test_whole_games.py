"""Runs on tasks that score whole games: what is logged, evaluated, probed and refused."""

import json
from pathlib import Path

import pytest

import cory
from cory.study import records
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from cory_env import payoff as payoffs
from tests.helpers.tables import flagged

TINY = {
    "policy": {"kind": "table"},
    "iterations": 2,
    "batch": 8,
    "max_response": (2, 4),
    "evaluation": {"queries": 4, "every": 0},
    "checkpoint_every": 1,
}
TEAMS, GAMES = "tests.helpers.tasks:OddTeams", "tests.helpers.tasks:OddGames"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run on a task that scores no response alone, with its report."""
    monkeypatch.setattr("cory.report.plots.draw", lambda *_: [])
    return cory.train(task=TEAMS, run=tmp_path / "run", **TINY)


@pytest.mark.parametrize("payoff", ["independent", "shuffled", "difference"])
def test_payoffs_and_metrics_are_of_the_scores_of_games(payoff):
    config = flagged("--task", GAMES, "--max-response", "3", "3", "--payoff", payoff)
    trainer = Trainer(config)
    metrics = trainer.iterate(0)
    odd = {
        seat: [sum(i % 2 for i in response.ids) for response in trainer.game.responses(seat)]
        for seat in trainer.game.seats
    }
    first, second = (trainer.batches[seat] for seat in ("pioneer_0", "observer_1"))
    assert first.score_B.tolist() == odd["observer_1"]
    assert second.score_B.tolist() == odd["pioneer_0"]
    mean = sum(odd["observer_1"]) / config.batch
    assert metrics["pioneer_0/llm_1/task_reward"] == pytest.approx(mean)
    if payoff == "independent":
        assert first.payoff_B.tolist() == odd["observer_1"]
    longest = [
        max(len(a.ids), len(b.ids))
        for a, b in zip(*(trainer.game.responses(seat) for seat in trainer.game.seats), strict=True)
    ]
    assert metrics["observer_1/llm_2/longest"] == pytest.approx(sum(longest) / config.batch)


def test_payoffs_are_asked_for_once_an_iteration_and_for_whole_batches_only(monkeypatch):
    """A payoff of other games' scores, and one held-out game: samples are drawn of it, and nobody is paid."""
    paid = []
    monkeypatch.setitem(
        payoffs.REGISTRY.items, "noted", lambda scores, iteration: paid.append(len(scores)) or scores
    )
    trainer = Trainer(flagged("--payoff", "noted", "--evaluation.queries", "1", "--iterations", "1"))
    paid.clear()
    trainer.iterate(0)
    HeldOut(trainer).sample_rows(1, {})
    assert paid == [trainer.config.batch]


def test_a_run_of_a_task_that_scores_teams_only_is_evaluated_as_a_team_and_says_why(run):
    last = run.metrics.loc[2].dropna()
    assert not [key for key in last.index if key.startswith(("eval/", "validation/"))]
    assert 2 <= last["team/observer_1/longest"] <= 4
    page = (run.path / "report.html").read_text()
    assert "none standalone: nobody else is odd" in page
    assert "scored in games only: see the held-out games of the team" in page
    sampled = [json.loads(line) for line in (run.path / "samples.jsonl").read_text().splitlines()]
    assert {"pioneer_0", "observer_1"} <= sampled[-1].keys()
    planned = type("Planned", (), {"iterations": 2, "is_trained": True})
    assert records.finished(run.path, planned)


def test_its_evaluation_has_games_and_no_standalone_numbers(run):
    found = cory.evaluate(run)
    assert found["metrics"] == found["gain_over_reference"] == found["comparison"] == {}
    assert "longest" in found["in_game"]["observer_1/llm_1"]["metrics"]
    assert found["data"]["left_out"][-1].endswith("none standalone: nobody else is odd")
    assert found["measured"]["queries"] == 4
    with pytest.raises(ValueError, match="scores no response alone: nobody else is odd; play games of 2"):
        cory.evaluate(run, game=False)


def test_its_probe_has_no_free_riding_which_is_measured_standalone(run):
    found = cory.probe(run.path, queries=4, pioneers=2, observers=2)
    assert found["free_riding"] == {}
    assert found["measured"]["queries"] == 4
    assert len(found["pairs"]) == 3


def test_one_seat_of_it_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="scores no response alone: nobody else is odd; play games of 2"):
        cory.train(task=TEAMS, seats=1, run=tmp_path / "run", **TINY)
    assert not Path(tmp_path / "run").exists()


def test_a_check_shows_the_scores_of_whole_games():
    shown = cory.check(task=TEAMS, **TINY)
    for game in shown.games:
        odd = [
            sum(letter in "bdf" for letter in turn.response)
            + turn.tokens
            - len(turn.response)
            - (not turn.cut)
            for turn in game
        ]  # b, d, f and the padding, which has no text, have odd ids
        assert [turn.score for turn in game] == odd[::-1]
