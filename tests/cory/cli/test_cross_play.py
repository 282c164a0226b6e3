"""Cross-play: every policy as the pioneer of every other, partners apart from strangers."""

import json
from dataclasses import replace

import numpy as np
import pytest

import cory
from cory.cli.main import main
from cory.report import cross_play as report
from cory.training.run import train
from tests.helpers.tables import TABLES

FEW = replace(TABLES, batch=16, iterations=3, evaluation=replace(TABLES.evaluation, queries=16))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("runs") / name for name in ("first", "second")]
    for seed, folder in enumerate(folders):
        train(replace(FEW, seed=seed), folder, report=False)
    return [str(folder) for folder in folders]


@pytest.fixture(scope="module")
def result(runs):
    return cory.cross_play(*runs)


def test_targets_of_unlike_games_are_refused(runs, tmp_path):
    train(replace(FEW, sees="none"), tmp_path / "blind", report=False)
    with pytest.raises(ValueError, match="do not play the same game: sees is all and none; give --sees"):
        cory.cross_play(runs[0], tmp_path / "blind")
    assert cory.cross_play(runs[0], tmp_path / "blind", sees="all")["pairs"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ("--evaluation.team",),
            "evaluation.team changes nothing here: it is for evaluations during training",
        ),
        (("--evaluation.average",), "evaluation.average changes nothing here"),
        (("--cross-play", "--evaluation.team"), "evaluation.team changes nothing here"),
        (
            ("--cross-play", "--threshold", "0.5"),
            "evaluation.threshold changes nothing here: the matrix is of",
        ),
        (("--cross-play", "--no-game"), "leave out --no-game or --cross-play"),
    ],
)
def test_options_that_would_change_nothing_are_refused(capsys, flags, reason):
    assert main(["evaluate", "runs/nowhere", *flags]) == 2
    assert reason in capsys.readouterr().err


def test_every_ordered_pair_is_played_once_and_its_kind_is_said(result):
    names = ["first:llm_1", "first:llm_2", "second:llm_1", "second:llm_2"]
    assert result["policies"] == names
    pairs = {(one["pioneer"], one["observer"]): one["kind"] for one in result["pairs"]}
    assert list(pairs) == [(p, o) for p in names for o in names]
    kinds = list(pairs.values())
    assert [kinds.count(kind) for kind in ("itself", "partners", "strangers")] == [4, 4, 8]
    assert pairs["second:llm_1", "second:llm_2"] == "partners"
    assert pairs["first:llm_1", "second:llm_2"] == "strangers"


def test_policies_of_one_run_are_partners_wherever_they_are_named(runs):
    """The folders of both policies, and a checkpoint of the run beside them."""
    named = [f"{runs[0]}/policies/llm_1", f"{runs[0]}/policies/llm_2", f"{runs[0]}/checkpoints/step-000003"]
    pairs = cory.cross_play(*named, evaluation={"queries": 4})["pairs"]
    assert {pair["kind"] for pair in pairs} == {"itself", "partners"}


def test_partners_score_what_the_evaluation_of_their_run_says(runs, result):
    evaluated = cory.evaluate(runs[0])["in_game"]
    for pair in result["pairs"]:
        if pair["kind"] == "partners" and pair["pioneer"].startswith("first:"):
            names = {"pioneer_0": pair["pioneer"], "observer_1": pair["observer"]}
            for seat, name in names.items():
                metrics = evaluated[f"{seat}/{name.partition(':')[2]}"]["metrics"]
                assert pair["scores"][seat]["value"] == pytest.approx(metrics["task_reward"])


def test_means_are_those_of_the_pairs_of_each_kind(result):
    for kind in ("itself", "partners", "strangers"):
        sums = [one["scores"]["sum of the scores"]["value"] for one in result["pairs"] if one["kind"] == kind]
        assert result["means"][kind]["value"] == pytest.approx(np.mean(sums))
    gap = result["means"]["partners minus strangers"]
    means = [result["means"][kind]["value"] for kind in ("partners", "strangers")]
    assert gap["value"] == pytest.approx(means[0] - means[1])
    assert gap["low"] < gap["value"] < gap["high"]


@pytest.mark.slow
def test_the_command_prints_matrices_and_writes_a_page_with_heat_maps(runs, tmp_path, capsys):
    out = tmp_path / "cross.json"
    assert main(["evaluate", *runs, "--cross-play", "--queries", "8", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Cross-play of 4 policies on the task echo: 16 pairs, 8 held-out queries each" in printed
    assert "partners minus strangers" in printed
    found = json.loads(out.read_text())
    assert found["queries"] == 8
    page = out.with_suffix(".html").read_text()
    assert page.count("data:image/svg+xml") == 1
    assert "second:llm_2" in page
    assert main(["evaluate", *runs, "--cross-play", "--queries", "8", "--out", str(out)]) == 0  # replaces it
    out.write_text("notes")
    assert main(["evaluate", *runs, "--cross-play", "--out", str(out)]) == 2
    assert out.read_text() == "notes"


def test_games_of_other_than_two_seats_are_refused(runs, tmp_path):
    run = tmp_path / "alone"
    train(replace(FEW, iterations=1, seats=1), run, report=False)
    with pytest.raises(ValueError, match="is a game of 1 seats"):
        cory.cross_play(runs[0], run)
    alone = cory.cross_play(run, seats=2)
    assert [one["kind"] for one in alone["pairs"]] == ["itself"]
    assert list(alone["means"]) == ["itself"]
    assert report.make_tables(alone)


def test_responses_that_a_judge_failed_on_are_said(tmp_path, runs, result, capsys):
    assert result["failures"] == []
    failed = {**result, "failures": [{"judge": "mine", "failure": "KeyError", "response": "a"}]}
    assert "judge mine failed: KeyError" in report.page(failed)
