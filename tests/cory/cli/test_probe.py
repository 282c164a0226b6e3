"""`cory probe`: results, settings and refusals."""

import json
import shutil

import pytest

from cory.api.probe import probe
from cory.cli.main import main
from cory.report import probe as report
from cory.report.page import write_report
from cory.runtime.files import read_json
from tests.helpers.runs import assert_refused

TABLES = ["--task", "echo", "--policy.kind", "table", "--max-response", "3", "3", "--learner.lr", "0.1"]
TABLES += ["--iterations", "2", "--batch", "8", "--evaluation.queries", "4", "--exchange.every", "1"]
SMALL = ["--queries", "9", "--pioneers", "2", "--observers", "3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of tables with one, two and three seats."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seats in (("one", "1"), ("two", "2"), ("three", "3")):
        assert main(["train", *TABLES, "--seats", seats, "--run", str(folder / name)]) == 0
    return folder


@pytest.fixture
def place(runs, tmp_path, monkeypatch):
    shutil.copytree(runs, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_probed_in_both_seatings_and_its_page_has_a_section(place, capsys, monkeypatch):
    assert main(["probe", "runs/two", *SMALL, "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert (
        "runs/two: task echo, its own score, 9 test queries x 2 pioneer x 3 observer responses, seed 3"
        in shown
    )
    assert "variance: pioneer's response" in shown
    result = json.loads((place / "runs/two/probe.json").read_text())
    measured = result["measured"]
    sizes = {"queries": 9, "pioneers": 2, "observers": 3, "seed": 3, "task": "echo", "judge": None}
    assert {name: measured[name] for name in sizes} == sizes
    assert set(measured["weights"]) == {"llm_1", "llm_2"}
    assert [(one["seating"]["pioneer_0"], one["seating"]["observer_1"]) for one in result["pairs"]] == [
        ("llm_1", "llm_2"),
        ("llm_2", "llm_1"),
        ("reference", "reference"),
    ]
    assert [one["reference"] for one in result["pairs"]] == [False, False, True]
    for one in result["pairs"]:
        gap = one["reading"]["own minus none"]
        assert gap["value"] == pytest.approx(one["reading"]["own"]["value"] - one["reading"]["none"]["value"])
        assert gap["low"] <= gap["value"] <= gap["high"]
    assert set(result["free_riding"]) == {"reference", "llm_1", "llm_2"}
    assert "free-riding" in result["free_riding"]["llm_1"]
    monkeypatch.setattr("cory.report.plots.draw", lambda curves, folder: [])  # they have tests of their own
    page = write_report(place / "runs/two").read_text(encoding="utf-8")
    assert "Probe: what the seats do to each other" in page
    assert "pioneer&#39;s share of the variance given the query" in page


def test_the_same_numbers_in_python_and_after_reading_the_file(place):
    assert main(["probe", "runs/two", *SMALL]) == 0
    result = probe("runs/two", queries=9, pioneers=2, observers=3)
    assert read_json(place / "runs/two" / report.FILE) == result
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    other = probe("runs/two", queries=9, pioneers=2, observers=3, seed=1)
    assert other["pairs"] != result["pairs"]


def test_settings_of_the_run_may_follow(place):
    options = [*SMALL, "--out", "found.json", "--sees", "none", "--payoff", "independent"]
    assert main(["probe", "runs/two", *options]) == 0
    assert not (place / "runs/two/probe.json").exists()
    result = json.loads((place / "found.json").read_text())
    assert result["measured"]["settings"]["payoff"] == "independent"
    sizes = {"queries": 9, "pioneers": 2, "observers": 3}
    assert probe("runs/two", **sizes, sees="none", payoff="independent") == result
    for one in result["pairs"]:
        assert one["reading"]["own"] == one["reading"]["none"]  # the observer reads none in any case


def test_one_policy_sits_in_both_seats_where_two_are_asked_for(place):
    assert main(["probe", "runs/one", *SMALL, "--seats", "2"]) == 0
    result = json.loads((place / "runs/one/probe.json").read_text())
    assert [list(one["seating"].values()) for one in result["pairs"]] == [["llm_1"] * 2, ["reference"] * 2]
    assert len(report.sections(place / "runs/one")) > 3


def test_the_first_two_of_three_policies_on_request(place):
    assert main(["probe", "runs/three", *SMALL, "--seats", "2"]) == 0
    result = json.loads((place / "runs/three/probe.json").read_text())
    assert set(result["measured"]["weights"]) == {"llm_1", "llm_2"}


def test_a_checkpoint_is_probed_into_a_named_file(place):
    assert main(["probe", "runs/two/checkpoints/step-000000", *SMALL, "--out", "start.json"]) == 0
    first = json.loads((place / "start.json").read_text())["pairs"][0]
    assert first["seating"] == {"pioneer_0": "llm_1", "observer_1": "llm_2"}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["runs/two", "runs/one"], "runs/one has 1 seat, and a probe measures"),
        (["runs/three"], "runs/three has 3 seats, and a probe measures"),
        (["runs/two", "--pioneers", "1"], "pioneers is 1; a variance needs 2 or more"),
        (["runs/nowhere"], "there is no folder runs/nowhere"),
        ([], "name one or more"),
        (["runs/two", "runs/three", "--out", "a.json"], "--out names one file for 2 targets"),
        (["runs/two", "--out", "nowhere/a.json"], "there is no folder nowhere"),
        (["runs/two", "--pioneer", "3"], "--pioneers"),
    ],
)
def test_refused(place, capsys, argv, why):
    assert_refused(["probe", *argv], place, capsys, why)


def test_an_incomplete_file_is_no_probe(place):
    (place / "runs/two/probe.json").write_text('{"measured": {}')
    assert report.sections(place / "runs/two") == []
